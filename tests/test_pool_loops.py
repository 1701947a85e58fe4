"""How fractional_avg_pool_grad cuts up its work: nothing of it may show in the result."""

import numpy as np
import pytest
from accuracy import DTYPES, draw

from numba_gradops import _dtypes, _layers, _reference, fractional_avg_pool_grad
from numba_gradops.cpu import _pages, _threads, fractional_pool

# Fewer channels than a vector has lanes, as many, and one more, in any dtype.
DEPTHS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 65)


def layer(rng, shape, dtype, overlapping, ratio=1.5):
    pool = _layers.PoolLayer("test", shape, ratio, overlapping)
    arguments = pool.arguments(rng, np.float64)
    gradient = draw(rng, arguments["out_backprop"].shape, DTYPES[dtype])
    return arguments | {"out_backprop": gradient}


def guarded(shape, dtype, offset):
    """Give memory for a result, `offset` elements behind a cache line, and all that lies around."""
    size = int(np.prod(shape))
    memory = np.full((size + 256) * dtype.itemsize, 0xAB, np.uint8)
    start = -memory.ctypes.data % 64 + (64 + offset) * dtype.itemsize
    stop = start + size * dtype.itemsize
    around = memory[:start], memory[stop:]
    return memory[start:stop].view(dtype).reshape(shape), around


@pytest.fixture
def cut(monkeypatch):
    """Cut work up as if caches were tiny, results huge and threads many."""

    def apply(panel, part, task, past_caches):
        monkeypatch.setattr(fractional_pool, "_PANEL", panel)
        monkeypatch.setattr(fractional_pool, "_PART", part)
        monkeypatch.setattr(fractional_pool, "_SMALLEST_TASK", task)
        monkeypatch.setattr(fractional_pool, "_TASKS", 10**6)
        monkeypatch.setattr(fractional_pool, "_PAST_CACHES", 0 if past_caches else 2**60)
        monkeypatch.setattr(_threads, "SERIAL_BELOW", 0)

    return apply


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("dtype", _dtypes.POOL)
def test_cuts_change_no_bit_and_touch_nothing_else(rng, cut, dtype, overlapping):
    for depth in DEPTHS:
        shape = (2, 13, 18, depth)
        arguments = layer(rng, shape, dtype, overlapping)
        whole = fractional_avg_pool_grad(**arguments)
        for panel, part, task, past_caches in (
            (1, 4096, 1, False),
            (4 * depth, 4096, 500, True),
            (10**4, 4096, 10**6, True),
            (1, 8, 500, True),
            (1, 3, 1, False),
        ):
            cut(panel, part, task, past_caches)
            for offset in (0, 1):
                out, around = guarded(shape, whole.dtype, offset)
                fractional_avg_pool_grad(**arguments, out=out)
                np.testing.assert_array_equal(out.view(np.uint8), whole.view(np.uint8))
                assert all((memory == 0xAB).all() for memory in around)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("past_caches", [False, True])
def test_nothing_behind_the_gradient_is_read(rng, cut, dtype, past_caches):
    """What would be read there is NaN or the lowest integer; and the inputs stay as they are."""
    cut(10**4, 4096, 10**6, past_caches)
    for depth in DEPTHS:
        arguments = layer(rng, (1, 5, 7, depth), dtype, True)
        gradient = arguments["out_backprop"]
        bad = np.nan if gradient.dtype.kind == "f" else np.iinfo(gradient.dtype).min
        memory = np.full(gradient.size + 200, bad, gradient.dtype)
        memory[100:-100] = gradient.ravel()
        kept = memory.copy()
        arguments["out_backprop"] = memory[100:-100].reshape(gradient.shape)
        result = fractional_avg_pool_grad(**arguments)
        exact = _reference.fractional_avg_pool_grad(**arguments)
        np.testing.assert_array_equal(result, exact.astype(gradient.dtype))
        np.testing.assert_array_equal(memory, kept)


@pytest.mark.parametrize("channels", [3, 40])
def test_shares_are_quotients_to_the_last_bit(rng, channels):
    """Also those that come from products: of hard cases, and of numbers of any size."""
    exponents = rng.integers(-1074, 1024, (1, 1, 1, channels))
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        5e-324,
        2.0**-1022,
        2.0**-800,
        np.finfo(float).max,
    ]
    with np.errstate(all="ignore"):
        for size in [*range(1, 260), 2**12 - 1, 2**16 + 1, 3**10]:
            gradient = np.ldexp(rng.uniform(1, 2, exponents.shape), exponents)
            # Multiples of the size, and their neighbours, lie closest to where rounding changes.
            multiples = size * rng.integers(2**50, 2**51, exponents.shape) / 2.0**45
            near = np.nextafter(multiples, rng.choice([-np.inf, np.inf], exponents.shape))
            mixed = np.where(rng.random(exponents.shape) < 0.2, rng.choice(special), gradient)
            for values in (gradient, multiples, near, mixed):
                result = fractional_avg_pool_grad([1, size, 1, channels], values, [0, size], [0, 1])
                exact = np.broadcast_to(0.0 + values / size, result.shape)
                np.testing.assert_array_equal(result, exact)
                assert not np.signbit(result[result == 0]).any()


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_float32_and_int32_take_one_rounding(rng, dtype):
    """Every size of cell up to 400, of values of all magnitudes."""
    for size in range(1, 400):
        if dtype == "float32":
            bits = rng.integers(0, 2**32, (1, 1, 1, 33), dtype=np.uint32)
            values = bits.view(np.float32)
        else:
            values = rng.integers(-(2**31), 2**31, (1, 1, 1, 33)).astype(np.int32)
        with np.errstate(all="ignore"):
            exact = (0.0 + values.astype(np.float64) / size).astype(dtype)
        result = fractional_avg_pool_grad([1, 1, size, 33], values, [0, 1], [0, size])
        np.testing.assert_array_equal(result, np.broadcast_to(exact, result.shape))


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("dtype", _dtypes.POOL)
def test_a_column_is_done_as_a_row(rng, dtype, overlapping):
    arguments = layer(rng, (3, 1, 50, 3), dtype, overlapping)
    row = fractional_avg_pool_grad(**arguments)
    arguments["orig_input_tensor_shape"] = (3, 50, 1, 3)
    arguments["out_backprop"] = arguments["out_backprop"].swapaxes(1, 2)
    sequences = "row_pooling_sequence", "col_pooling_sequence"
    arguments |= dict(zip(sequences, [arguments[name] for name in sequences[::-1]], strict=True))
    memory = np.zeros((3, 50, 2, 3), DTYPES[dtype])
    fractional_avg_pool_grad(**arguments, out=memory[:, :, :1])
    np.testing.assert_array_equal(memory[:, :, 0], row[:, 0])
    assert not memory[:, :, 1].any()


def test_new_memory_is_told_from_used_memory():
    """Pages of a large allocation are not there until they are written to (where that is known)."""
    array = np.zeros(2**26, np.uint8)
    if _pages._mincore() is None:
        pytest.skip("this system does not tell which pages are there")
    assert not _pages.are_there(array)
    array[...] = 1
    assert _pages.are_there(array)
    assert not _pages.are_there(array[:0])
