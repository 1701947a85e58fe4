"""From the public functions to the launch on a device: which arrays, streams, devices, errors.

With a made-up driver, so that all of it runs without a GPU, and most without numba-cuda.
"""

import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fake_driver import FakeArray
from fake_gpu import F32, SHAPE, WEIGHTS, convolve, emulator, gradient, pool

from numba_gradops import (
    _device,
    _selftest,
    conv2d_backprop_input,
    fractional_avg_pool_grad,
    warmup,
)
from numba_gradops._warmup import dtype_named


@pytest.mark.nvvm
def test_host_arrays_are_copied_computed_and_come_back_as_numpy(driver):
    driver.execute = emulator()
    result = pool(gradient(), device="cuda")
    assert type(result) is np.ndarray
    assert (result == pool(gradient())).all()
    weights = np.random.default_rng(0).standard_normal(WEIGHTS.shape).astype(F32)
    result = convolve(weights, gradient(), device="cuda")
    np.testing.assert_allclose(result, convolve(weights, gradient()), rtol=1e-5)
    assert not driver.memory or set(driver.memory) == driver_tables()


def driver_tables():
    from numba_gradops.cuda import _launch

    return {address for kept in _launch._tables.values() for address, _ in kept.values()}


@pytest.mark.nvvm
def test_host_arrays_of_any_layout_and_out_are_served(driver):
    driver.execute = emulator()
    expected = pool(gradient())
    swapped = np.asfortranarray(gradient()).astype(">f4")
    out = np.full((*SHAPE[:3], 8), np.nan, F32)[..., ::2]
    assert pool(swapped, device="cuda", out=out) is out
    assert (out == expected).all()


@pytest.mark.nvvm
@pytest.mark.parametrize("name", ["float64", "int32", "int64", "float16", "bfloat16"])
def test_every_dtype_reaches_the_device(name, driver):
    driver.execute = emulator()
    array = gradient(dtype_named(name))
    result = pool(array, device="cuda")
    assert result.dtype == array.dtype
    assert (result == pool(array)).all()


@pytest.mark.nvvm
def test_device_arrays_are_computed_on_the_device_and_nothing_waits(driver):
    driver.execute = emulator()
    given = FakeArray(driver, gradient(), stream=7)
    result = pool(given)
    assert (result.to_host() == pool(gradient())).all()
    (launch,) = driver.launches
    assert launch.stream == 7
    assert ("download", 7) not in driver.log
    assert not [entry for entry in driver.log if entry[0].startswith("synchronize")]
    assert {entry[1] for entry in driver.log} == {7}
    assert result.stream == 7, "whoever reads the result must know what to wait for"


def test_a_table_on_its_way_to_the_device_is_not_freed(driver):
    from numba_gradops.cuda import _launch

    driver.is_done = False
    given = FakeArray(driver, np.ones((1, 1, 1, 1), F32), stream=7)
    for size in range(10, 20):  # each with a table of its own
        fractional_avg_pool_grad([1, size, 1, 1], given, [0, size], [0, 1])
    tables = [owner for _, owner in _launch._borrowed if isinstance(owner, np.ndarray)]
    assert len(tables) == 10
    driver.is_done = True
    pool(FakeArray(driver, gradient(), stream=7))
    assert len(_launch._borrowed) < len(tables)


def test_one_thread_at_a_time_asks_for_what_is_done(driver, monkeypatch):
    """An event that has happened is destroyed: nobody may ask for it again."""
    from numba_gradops.cuda import _launch

    asked = []

    def has_happened(event):
        asked.append(event[1])
        time.sleep(0.001)  # others come in between
        return True

    monkeypatch.setattr(driver, "record", lambda _: ("event", next(numbers)))
    monkeypatch.setattr(driver, "has_happened", has_happened)
    numbers = itertools.count()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: _launch.keep_until_done(object(), 7), range(64)))
    assert len(set(asked)) == len(asked) == 63


def test_a_table_that_is_used_again_stays_on_the_device(driver):
    given = FakeArray(driver, gradient(), stream=7)
    tables = []
    for _ in range(4):
        pool(given)
        tables.append(driver.launches[-1].addresses[-1])
    assert tables[0] not in driver.memory
    assert tables[1] == tables[2] == tables[3]
    waits = [entry for entry in driver.log if entry[0].startswith("synchronize")]
    assert waits == [("synchronize", driver.own_stream(0))]  # for the copy of the table alone


def test_tables_do_not_fill_the_device(driver, monkeypatch):
    from numba_gradops.cuda import _launch

    monkeypatch.setattr(_launch, "_TABLE_BYTES", 2**12)
    driver.pools = False
    given = FakeArray(driver, np.ones((1, 1, 1, 1), F32))
    before = len(driver.memory)
    for size in range(10, 40):
        fractional_avg_pool_grad([1, size, 1, 1], given, [0, size], [0, 1])
        kept = sum(content.size for content in driver.memory.values())
    assert len(driver.memory) < before + 60  # results, which nobody frees here, and few tables
    assert sum(each.nbytes for _, each in _launch._tables[0].values()) <= 2**12
    assert kept


@pytest.mark.nvvm
def test_out_is_written_in_place_and_returned(driver):
    driver.execute = emulator()
    given = FakeArray(driver, gradient())
    out = FakeArray(driver, np.full(SHAPE, np.nan, F32))
    assert pool(given, out=out) is out
    assert (out.to_host() == pool(gradient())).all()


@pytest.mark.nvvm
def test_arrays_that_are_not_aligned_take_the_scalar_kernel(driver):
    driver.execute = emulator()
    given = FakeArray(driver, gradient(), offset=4)
    result = pool(given)
    assert driver.launches[-1].variant.vector == 1
    assert (result.to_host() == pool(gradient())).all()
    pool(FakeArray(driver, gradient()))
    assert driver.launches[-1].variant.vector == 4


def test_work_runs_where_the_arrays_are(driver):
    given = FakeArray(driver, gradient(), device=1)
    for device in (None, "cuda", "cuda:1"):
        result = pool(given, device=device)
        assert driver.owner(result.address) == 1
    assert driver.stack == [0]
    with pytest.raises(ValueError, match="out_backprop must be on device 'cuda:0', got 'cuda:1'"):
        pool(given, device="cuda:0")
    result = pool(gradient(), device="cuda:1")
    assert driver.owner(driver.launches[-1].addresses[0]) == 1
    with pytest.raises(RuntimeError, match="device 'cuda:2' is not available: there are 2 GPUs"):
        pool(gradient(), device="cuda:2")


def test_arrays_of_different_devices_are_refused(driver):
    here, there = (FakeArray(driver, WEIGHTS, device=device) for device in (0, 1))
    given = FakeArray(driver, gradient(), device=1)
    with pytest.raises(ValueError, match="out_backprop must be on device 'cuda:0', got 'cuda:1'"):
        convolve(here, given)
    with pytest.raises(ValueError, match="out must be on device 'cuda:1', got 'cuda:0'"):
        convolve(there, given, out=FakeArray(driver, np.zeros(SHAPE, F32)))
    for device in (None, "cuda"):
        with pytest.raises(ValueError, match="filter must be on the device, as out_backprop is"):
            convolve(WEIGHTS, given, device=device)
        with pytest.raises(ValueError, match="out must be on the device"):
            convolve(there, given, out=np.zeros(SHAPE, F32), device=device)


def test_streams_of_other_producers_are_ordered_without_the_host(driver):
    weights = FakeArray(driver, WEIGHTS, stream=5)
    convolve(weights, FakeArray(driver, gradient(), stream=9))
    assert driver.launches[-1].stream == 9
    order = [entry for entry in driver.log if entry[0] in ("wait", "launch")]
    assert order == [("wait", 9, 5), ("launch", 9), ("wait", 5, 9)]
    assert not [entry for entry in driver.log if entry[0].startswith("synchronize")]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"shape": (2, 6, 6, 3)}, ValueError, r"out must have shape \(2, 6, 6, 4\), got"),
        ({"dtype": np.float64}, TypeError, "out must have dtype float32, got float64"),
        ({"read_only": True}, ValueError, "out must be writeable, got a read-only array"),
    ],
)
def test_an_out_that_cannot_take_the_result_is_refused(change, error, text, driver):
    content = np.zeros(change.get("shape", SHAPE), change.get("dtype", F32))
    out = FakeArray(driver, content, read_only=change.get("read_only", False))
    with pytest.raises(error, match=text):
        pool(FakeArray(driver, gradient()), out=out)


def test_an_out_in_the_memory_of_an_input_is_refused(driver):
    given = FakeArray(driver, np.zeros(SHAPE, F32))
    given.shape = (2, 3, 3, 4)
    out = FakeArray(driver, np.zeros(SHAPE, F32))
    out.address = given.address
    with pytest.raises(ValueError, match="out must not share memory with out_backprop"):
        pool(given, out=out)


def test_arrays_that_are_not_contiguous_are_refused_and_told_what_to_do(driver):
    given = FakeArray(driver, gradient())
    given.strides = (144, 16, 48, 4)
    with pytest.raises(ValueError, match=r"out_backprop must be contiguous.*contiguous\(\)"):
        pool(given)
    given.strides = (144, 48, 16, 4)
    pool(given)


def test_dtypes_and_shapes_are_checked_without_reading_data(driver):
    with pytest.raises(TypeError, match=r"out_backprop must have one of the dtypes .* got uint8"):
        pool(FakeArray(driver, gradient(np.uint8)))
    with pytest.raises(TypeError, match="byte order"):
        pool(FakeArray(driver, gradient().astype(">f4")))
    with pytest.raises(TypeError, match="filter and out_backprop must have the same dtype"):
        convolve(FakeArray(driver, WEIGHTS.astype(np.float64)), FakeArray(driver, gradient()))
    with pytest.raises(ValueError, match="out_backprop must have 3 rows"):
        convolve(FakeArray(driver, WEIGHTS), FakeArray(driver, np.ones((2, 4, 3, 4), F32)))
    assert not driver.launches


@pytest.mark.usefixtures("driver")
def test_winograd_is_refused():
    with pytest.raises(ValueError, match="algorithm 'winograd' is not available on CUDA"):
        convolve(WEIGHTS, gradient(), device="cuda", algorithm="winograd")


def test_too_little_memory_is_a_memory_error_with_the_number_of_bytes(driver):
    driver.largest = 300
    with pytest.raises(MemoryError, match=r"need \d+ bytes of memory on device 'cuda:0'"):
        pool(gradient(), device="cuda")
    assert not driver.memory
    driver.largest = 2**20
    with pytest.raises(MemoryError, match=r"the result of shape .* needs \d+ bytes .*'cuda:0'"):
        fractional_avg_pool_grad(
            [2**10, 2**10, 1, 1], FakeArray(driver, np.ones((2**10, 1, 1, 1), F32)), [0, 1], [0, 1]
        )


def test_an_empty_result_needs_no_launch(driver):
    result = conv2d_backprop_input(
        [0, 4, 4, 2],
        np.ones((1, 1, 2, 2), F32),
        np.ones((0, 4, 4, 2), F32),
        [1] * 4,
        "SAME",
        device="cuda",
    )
    assert result.shape == (0, 4, 4, 2)
    assert not driver.launches


@pytest.mark.nvvm
def test_an_empty_filter_gives_zeros(driver):
    driver.execute = emulator()
    result = conv2d_backprop_input(
        [1, 4, 4, 2],
        np.ones((1, 1, 2, 0), F32),
        np.ones((1, 4, 4, 0), F32),
        [1] * 4,
        "SAME",
        device="cuda",
    )
    assert (result == np.zeros((1, 4, 4, 2))).all()


@pytest.mark.nvvm
def test_the_selftest_runs_on_a_device(driver, capsys, monkeypatch):
    driver.execute = emulator()
    monkeypatch.setattr(_selftest._dtypes, "CONV2D", ("float32",))
    monkeypatch.setattr(_selftest._dtypes, "POOL", ("float32", "int32"))
    assert _selftest.run("cuda")
    assert "0 failed" in capsys.readouterr().out


def test_warmup_loads_the_kernels_that_calls_take(driver):
    warmup(["float32"], device="cuda:1")
    loaded = set(driver.functions)
    before = len(driver.functions)
    weights = FakeArray(driver, WEIGHTS, device=1)
    convolve(weights, FakeArray(driver, gradient(), device=1))
    pool(FakeArray(driver, gradient(), device=1))
    assert {launch.variant for launch in driver.launches} <= loaded
    assert len(driver.functions) == before


@pytest.mark.parametrize(
    ("driver_version", "toolkit", "text"),
    [
        (13000, (13, "13.5.37"), None),
        (13000, (12, "12.9.1"), None),
        (12040, None, None),
        (12040, (13, "13.5.37"), r"runs CUDA up to 12.4, .* are CUDA 13.5.37.*\[cuda12\]"),
    ],
)
def test_a_driver_that_is_too_old_is_named_with_versions(driver_version, toolkit, text):
    problem = _device._version_problem(driver_version, toolkit)
    if text is None:
        assert problem is None
    else:
        assert re.search(text, problem)


@pytest.mark.usefixtures("driver")
def test_dlpack_capsules_are_read_and_made_as_numpy_does():
    from numba_gradops.cuda import _dlpack

    array = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    facts = _dlpack.read(array.__dlpack__())
    assert facts.address == array.ctypes.data
    assert (facts.shape, facts.dtype) == ((2, 3, 4), "int64")
    assert facts.strides in (None, (12, 4, 1))
    exporter = _dlpack.Exporter(array, array.ctypes.data, array.shape, "int64", (1, 0))
    taken = np.from_dlpack(exporter)
    assert (taken == array).all()
    assert np.shares_memory(taken, array)
    assert _dlpack._exported
    del taken
    assert not _dlpack._exported  # the taker's end frees the memory
