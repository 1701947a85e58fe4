"""Calls that public bug reports against other libraries are about, by the ids of reports.json.

`test_reported_call` makes the call each report is about; the tests below it, named by the id,
make the other calls the report tells of. Reports on the process around a call are in
test_bug_reports_runtime.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import golden
import numba
import numpy as np
import pytest
from numba.core import event
from numpy.typing import NDArray

import numba_gradops
from numba_gradops import _reference, raw_ops

REPORTS = {report["id"]: report for report in golden.bug_reports()}
CALLS = {name: report["call"] for name, report in REPORTS.items() if "call" in report}
WITH_GPU = [name for name in CALLS if "gpu" in REPORTS[name]["needs"]]
Arguments = dict[str, Any]


def arguments_of(id: str, **changed: Any) -> Arguments:
    """The keyword arguments of a report's call, some of them changed."""
    arguments: Arguments = golden.build(CALLS[id]["kwargs"])
    return arguments | changed


def call(id: str, *, device: str | None = None, **changed: Any) -> NDArray[Any]:
    """Make a report's call; only the raw op has an argument for explicit paddings."""
    arguments = arguments_of(id, **changed)
    if "explicit_paddings" in arguments:
        return np.asarray(raw_ops.Conv2DBackpropInput(**arguments, device=device))
    return np.asarray(getattr(numba_gradops, CALLS[id]["op"])(**arguments, device=device))


def exact(id: str, **changed: Any) -> NDArray[np.float64]:
    """The float64 reference for a report's call."""
    arguments = arguments_of(id, **changed)
    if "explicit_paddings" in arguments:
        flat = arguments.pop("explicit_paddings")
        arguments["padding"] = [flat[i : i + 2] for i in range(0, 8, 2)]
    with np.errstate(invalid="ignore"):
        return np.asarray(getattr(_reference, CALLS[id]["op"])(**arguments))


def assert_right(id: str, result: NDArray[Any]) -> None:
    """Compare with what the report's record expects."""
    expect = REPORTS[id]["expect"]
    assert list(result.shape) == expect["shape"]
    assert result.dtype == arguments_of(id)["out_backprop"].dtype
    if expect["type"] == "shape":
        return
    wanted = exact(id)
    largest = float(np.abs(wanted, where=np.isfinite(wanted), out=np.zeros_like(wanted)).max())
    tolerance = {"rtol": expect["rtol"], "atol": expect["rtol"] * largest}
    result = golden.exactly(result)
    np.testing.assert_allclose(result, wanted, **tolerance)
    if "values" in expect:
        values = np.array(expect["values"]).astype(np.float64)
        np.testing.assert_allclose(result.ravel(), values, **tolerance)
    for at, value in expect.get("samples", []):
        np.testing.assert_allclose(result.ravel()[at], value, **tolerance)


def test_every_report_is_there() -> None:
    assert len(REPORTS) == 30
    assert len(CALLS) == 23


@pytest.mark.parametrize("id", CALLS)
def test_reported_call(id: str) -> None:
    expect = REPORTS[id]["expect"]
    if expect["type"] != "raises":
        assert_right(id, call(id))
        return
    with pytest.raises(tuple(golden.EXCEPTIONS[name] for name in expect["exceptions"])) as caught:
        call(id)
    assert all(word in str(caught.value) for word in expect.get("message_has", []))


@pytest.mark.gpu
@pytest.mark.parametrize("id", WITH_GPU)
def test_reported_call_on_a_gpu(id: str) -> None:
    try:
        result = call(id, device="cuda")
    except RuntimeError as missing:
        if "not available" not in str(missing):
            raise
        pytest.skip(f"needs an NVIDIA GPU: {missing}")
    assert_right(id, result)


def test_c01_padding_follows_the_size_asked_for() -> None:
    three, four = call("C01", input_sizes=[1, 3, 3, 1]), call("C01")
    np.testing.assert_array_equal(three, exact("C01", input_sizes=[1, 3, 3, 1]))
    assert not np.array_equal(three, four[:, :3, :3])


def test_c03_a_wider_result_ends_in_zeros() -> None:
    ten, eleven = call("C03", input_sizes=[1, 7, 10, 1]), call("C03")
    np.testing.assert_array_equal(eleven[:, :, :10], ten)
    assert not eleven[:, :, 10].any()


def test_c05_message_names_the_axis() -> None:
    with pytest.raises(ValueError, match=r"(?i)rows|height") as caught:
        call("C05")
    assert all(word in str(caught.value) for word in ("input", "filter", "stride", "dilation"))


def test_c16_channels_first_equals_channels_last_transposed() -> None:
    last = arguments_of("C16", data_format="NHWC", input_sizes=[1, 9, 7, 3], strides=[1, 2, 2, 1])
    last["out_backprop"] = last["out_backprop"].transpose(0, 2, 3, 1)
    expected = numba_gradops.conv2d_backprop_input(**last).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(call("C16"), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "weights",
    [
        np.ones((1, 2, 5, 5), np.float32).transpose(2, 3, 1, 0),
        np.asfortranarray(np.ones((5, 5, 2, 1), np.float32)),
        np.ones((5, 5, 2, 1), np.float32)[::-1, ::-1],
        np.ones((5, 5, 4, 3), np.float32)[:, :, ::2, 1:2],
    ],
    ids=["transposed", "fortran", "reversed", "strided"],
)
@pytest.mark.parametrize("numbered", [False, True], ids=["ones", "numbered"])
def test_c20_memory_order_of_the_filter_does_not_matter(
    weights: NDArray[np.float32], numbered: bool
) -> None:
    if numbered:  # equal numbers could be swapped unseen
        weights = weights.copy(order="K") * 0 + np.arange(50, dtype="f4").reshape(weights.shape)
    before = weights.copy()
    result = call("C20", filter=weights)
    np.testing.assert_array_equal(result, call("C20", filter=np.ascontiguousarray(weights)))
    np.testing.assert_array_equal(weights, before)
    if not numbered:
        edge = np.array([1, 2, 2, 2, 2, 1])
        np.testing.assert_array_equal(result, np.outer(edge, edge)[None, :, :, None].repeat(2, 3))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_c21_infinite_weights_reach_only_their_own_sums(dtype: str) -> None:
    arguments = arguments_of("C21")
    weights, gradient = (arguments[name].astype(dtype) for name in ("filter", "out_backprop"))
    result = call("C21", filter=weights, out_backprop=gradient)
    np.testing.assert_array_equal(result, exact("C21"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_c23_four_thousand_ones_sum_to_their_count(dtype: str) -> None:
    weights, gradient = np.ones((1, 1, 1, 4096), dtype), np.ones((1, 1, 1, 4096), dtype)
    result = numba_gradops.conv2d_backprop_input(
        [1, 1, 1, 1], weights, gradient, [1, 1, 1, 1], "SAME"
    )
    assert result.item() == 4096


def test_c25_float32_stays_float32() -> None:
    arguments = arguments_of("C25")
    halves = {name: arguments[name].astype(np.float32) for name in ("filter", "out_backprop")}
    result = call("C25", **halves)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, call("C25"), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["filter", "out_backprop"])
def test_c25_mixed_dtypes_are_refused(name: str) -> None:
    single = arguments_of("C25")[name].astype(np.float32)
    with pytest.raises(TypeError, match=r"float32.*float64|float64.*float32"):
        call("C25", **{name: single})


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_c26_empty_batch_keeps_its_dtype(dtype: str) -> None:
    weights, gradient = np.ones((5, 5, 16, 1), dtype), np.ones((0, 7, 7, 1), dtype)
    result = call("C26", filter=weights, out_backprop=gradient)
    assert result.shape == (0, 14, 14, 16)
    assert result.dtype == dtype


@pytest.mark.alone
@pytest.mark.parametrize("sizes", [[1, 5, 5, 999999999999], [114078056, 179835296]])
def test_c28_absurd_sizes_are_refused_at_once(sizes: list[int]) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="must"):
        call("C28", input_sizes=sizes)
    assert time.perf_counter() - start < 0.1


@pytest.fixture
def compilations() -> Iterator[list[Any]]:
    """Every Numba compilation that happens while the test runs."""
    with event.install_recorder("numba:compile") as recorder:
        yield recorder.buffer


@pytest.mark.alone
def test_c32_second_call_of_a_long_kernel_takes_less_than_a_second() -> None:
    arguments = arguments_of("C32")
    numba_gradops.conv2d_backprop_input(**arguments)
    start = time.perf_counter()
    numba_gradops.conv2d_backprop_input(**arguments)
    assert time.perf_counter() - start < REPORTS["C32"]["expect"]["time_s_second_call"]


def test_c32_another_length_compiles_nothing(compilations: list[Any]) -> None:
    call("C32")
    compilations.clear()
    for width in (500, 1000, 2500):
        gradient = np.ones((1, 1, width, 1026), np.float32)
        sizes = [1, 1, (width - 1) * 256 + 1024, 1]
        assert call("C32", input_sizes=sizes, out_backprop=gradient).shape == tuple(sizes)
    assert not compilations


def test_c34_bits_do_not_depend_on_the_run_or_the_thread_count() -> None:
    arguments = arguments_of("C34")
    first = numba_gradops.conv2d_backprop_input(**arguments)
    available = numba.get_num_threads()
    try:
        for threads in sorted({1, min(2, available), available}) + [available] * 2:
            numba.set_num_threads(threads)
            again = numba_gradops.conv2d_backprop_input(**arguments)
            np.testing.assert_array_equal(again, first)
    finally:
        numba.set_num_threads(available)


def test_f02_message_names_both_batch_sizes() -> None:
    with pytest.raises(ValueError, match="batch") as caught:
        call("F02")
    assert set(re.findall(r"\d+", str(caught.value))) >= {"4", "1"}


@pytest.mark.parametrize(
    ("rows", "cols", "blamed"),
    [([-10, 1, 2], [1, 2, 3, 4], "row"), ([1, 2, 3], [1, 2, -3, 4], "col")],
    ids=["rows", "columns"],
)
def test_f04_message_names_the_negative_sequence(
    rows: list[int], cols: list[int], blamed: str
) -> None:
    with pytest.raises(ValueError, match=f"{blamed}_pooling_sequence"):
        call("F04", row_pooling_sequence=rows, col_pooling_sequence=cols)


INTEGER_LISTS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "range": lambda values: range(values[0], values[-1] + 1, values[1] - values[0]),
    "scalars": lambda values: [np.int32(value) for value in values],
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "big-endian": lambda values: np.array(values, ">i4"),
    # TensorFlow reads the elements in order, whatever the rank.
    "row": lambda values: [values],
    "column": lambda values: np.array(values)[:, None],
}


@pytest.mark.parametrize("kind", INTEGER_LISTS)
def test_f10_sequences_of_any_integers_are_accepted(kind: str) -> None:
    sequence = INTEGER_LISTS[kind]([0, 2, 4])
    result = call("F10", row_pooling_sequence=sequence, col_pooling_sequence=sequence)
    np.testing.assert_array_equal(result, np.full((1, 4, 4, 1), 0.25, np.float32))


@pytest.mark.parametrize("kind", ["list", "tuple", "scalars", "int32", "int64"])
def test_f10_shapes_of_any_integers_are_accepted(kind: str) -> None:
    result = call("F10", orig_input_tensor_shape=INTEGER_LISTS[kind]([1, 4, 4, 1]))
    np.testing.assert_array_equal(result, np.full((1, 4, 4, 1), 0.25, np.float32))


@pytest.mark.parametrize("name", ["row_pooling_sequence", "col_pooling_sequence"])
@pytest.mark.parametrize("floats", [[0.0, 2.0, 4.0], np.array([0.0, 2.0, 4.0])], ids=type)
def test_f10_sequences_of_floats_are_refused_by_name(name: str, floats: Any) -> None:
    with pytest.raises(TypeError, match=name):
        call("F10", **{name: floats})


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ([0, 2, 2, 1], [0, 2, 4]),
        ([1, 2, 2, 0], [0, 2, 4]),
        ([], [0, 2, 4]),
        ([2, 2, 1], [0, 2, 4]),
        ([1, 2, 2, 1], [0, 2]),
    ],
    ids=["no-batch", "no-depth", "rank-0", "rank-3", "short-sequence"],
)
def test_f12_gradients_of_no_size_or_rank_are_refused(shape: list[int], rows: list[int]) -> None:
    gradient = np.ones(shape, np.float32)
    with pytest.raises(ValueError, match="out_backprop"):
        call("F12", out_backprop=gradient, row_pooling_sequence=rows)
