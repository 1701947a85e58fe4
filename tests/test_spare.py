"""The memory of a freed large result: used again, but never while anything shows it."""

import gc

import numpy as np
import pytest

from numba_gradops import _arrays, _spare, fractional_avg_pool_grad

ENDS = np.arange(0, 513, 2)
FIRST, SECOND = (np.full((1, 256, 256, 20), value) for value in (4.0, 8.0))
SHAPE = (1, 512, 512, 20)  # 40 MiB of float64


@pytest.fixture(autouse=True)
def nothing_spare():
    gc.collect()
    _spare._Lent.spare.clear()
    yield
    _spare._Lent.spare.clear()


def compute(gradient):
    return fractional_avg_pool_grad(SHAPE, gradient, ENDS, ENDS)


def test_memory_of_a_freed_result_is_used_again():
    result = compute(FIRST)
    address = result.ctypes.data
    assert address % 64 == 0
    del result
    again = compute(SECOND)
    assert again.ctypes.data == address
    assert (again == 2).all()


KEEPERS = {
    "itself": lambda a: a,
    "some rows": lambda a: a[0, 5:9],
    "transposed": lambda a: a.T,
    "another dtype": lambda a: a.view(np.int64),
    "a buffer": memoryview,
}


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_what_still_shows_a_result_keeps_it(keep):
    result = compute(FIRST)
    kept = keep(result)
    before = np.array(kept)
    del result
    others = [compute(SECOND) for _ in range(2)]
    assert not any(np.shares_memory(np.asarray(kept), other) for other in others)
    assert not np.shares_memory(*others)
    np.testing.assert_array_equal(np.asarray(kept), before)


def test_one_block_is_kept_and_none_that_is_large_or_much_too_large():
    results = [compute(FIRST) for _ in range(3)]
    assert not _spare._Lent.spare
    del results
    assert len(_spare._Lent.spare) == 1
    small = _arrays._new_result((_spare.SMALLEST + 8,), np.dtype(np.uint8))
    assert small.ctypes.data % 64 == 0
    assert not _spare._Lent.spare
    for nbytes in (_spare.SMALLEST, _spare.LARGEST + 1):
        _arrays._new_result((nbytes,), np.dtype(np.uint8))
        assert not _spare._Lent.spare
