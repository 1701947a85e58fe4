"""Random calls from several threads at once, valid and invalid ones mixed, every result checked.

``python tests/soak.py 600`` works for so many seconds, in all dtypes or in those named after that,
and prints what it did; `test_soak` runs it for a few. It ends with an error if a result is wrong,
if an invalid call passes or fails with anything but ValueError or TypeError, or if memory still
grows after the first half of the time.
"""

from __future__ import annotations

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import DTYPES, RESOLUTION, draw

from numba_gradops import (
    _dtypes,
    _reference,
    conv2d_backprop_input,
    fractional_avg_pool_grad,
    warmup,
)

THREADS = 4
GROWTH = 2**25  # bytes: blocks that the C library keeps for each thread come and go
WINOGRAD = {"float32": 3e-5, "float64": 1e-13}
Call = dict[str, Any]


def convolution(rng: np.random.Generator, dtypes: list[str]) -> Call:
    dtype = DTYPES[rng.choice([name for name in dtypes if name in _dtypes.CONV2D])]
    groups, group_in, group_out = rng.integers(1, (4, 20, 9))
    batch = int(rng.integers(1, 4))
    word = str(rng.choice(["SAME", "VALID"]))
    window, strides, dilations = (rng.integers(1, 4, 2).tolist() for _ in range(3))
    if rng.random() < 0.5:
        strides = dilations = [1, 1]
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    sides = [r + int(rng.integers(0, 14)) for r in reach]
    outs = [
        -(-size // s) if word == "SAME" else (size - r) // s + 1
        for size, r, s in zip(sides, reach, strides, strict=True)
    ]
    channels, terms = int(groups * group_in), int(groups * group_out)
    call: Call = {
        "input_sizes": [batch, *sides, channels],
        "filter": draw(rng, (*window, int(group_in), terms), dtype),
        "out_backprop": draw(rng, (batch, *outs, terms), dtype),
        "strides": [1, *strides, 1],
        "padding": word,
        "dilations": [1, *dilations, 1],
        "data_format": "NHWC",
    }
    if rng.random() < 0.4:
        call["data_format"] = "NCHW"
        call["out_backprop"] = call["out_backprop"].transpose(0, 3, 1, 2)
        for name in ("input_sizes", "strides", "dilations"):
            n, h, w, c = call[name]
            call[name] = [n, c, h, w]
    return call


def pooling(rng: np.random.Generator, dtypes: list[str]) -> Call:
    dtype = DTYPES[rng.choice([name for name in dtypes if name in _dtypes.POOL])]
    batch, depth = rng.integers(1, (4, 40)).tolist()
    rows, cols = ([0, *np.cumsum(rng.integers(1, 4, rng.integers(1, 9))).tolist()] for _ in "rc")
    shape = (batch, len(rows) - 1, len(cols) - 1, depth)
    return {
        "orig_input_tensor_shape": [batch, rows[-1], cols[-1], depth],
        "out_backprop": draw(rng, shape, dtype),
        "row_pooling_sequence": rows,
        "col_pooling_sequence": cols,
        "overlapping": bool(rng.integers(2)),
    }


def in_other_memory(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    """Give the same numbers: as they are, in Fortran order, every other of more, or read-only."""
    kind = rng.integers(4)
    if kind == 1:
        return np.asfortranarray(array)
    if kind == 2:
        return np.repeat(array, 2, axis=1)[:, ::2]
    if kind == 3:
        array = array.copy()
        array.flags.writeable = False
    return array


def spoil(rng: np.random.Generator, call: Call) -> None:
    """Make a call invalid."""
    name = str(rng.choice(list(call)))
    value = call[name]
    if isinstance(value, np.ndarray):
        wrong = [value[0], value.astype(np.complex64), value[None], None, np.ma.array(value)]
    elif isinstance(value, list):
        wrong = [[*value, 1.5], value[:1], [-1] * len(value), "1111", [2**70] * len(value)]
    else:
        wrong = ["other", 3.5, {}]
    call[name] = wrong[rng.integers(len(wrong))]


def check(result: np.ndarray, exact: np.ndarray, bound: float) -> None:
    if result.dtype.kind == "i":
        assert (result == exact.astype(np.int64).astype(result.dtype)).all()
        return
    error = np.abs(result.astype(np.float64) - exact).max(initial=0)
    assert error <= bound * np.abs(exact).max(initial=0), (error, bound)


def one(rng: np.random.Generator, dtypes: list[str]) -> bool:
    """Make one call; tell whether it was a valid one."""
    convolves = rng.random() < 0.6
    call = convolution(rng, dtypes) if convolves else pooling(rng, dtypes)
    function = conv2d_backprop_input if convolves else fractional_avg_pool_grad
    for name in ("filter", "out_backprop"):
        if name in call:
            call[name] = in_other_memory(rng, call[name])
    if rng.random() < 0.3:
        spoil(rng, call)
        try:
            function(**call)
        except (ValueError, TypeError):
            return False
        raise AssertionError(f"passed: { {k: getattr(v, 'shape', v) for k, v in call.items()} }")
    exact = getattr(_reference, function.__name__)(**call)
    name = call["out_backprop"].dtype.name
    out = np.empty(exact.shape, call["out_backprop"].dtype) if rng.random() < 0.3 else None
    result = function(**call, out=out)
    assert out is None or result is out
    check(result, exact, WINOGRAD.get(name, RESOLUTION[name]) if convolves else RESOLUTION[name])
    return True


def large(dtype: Any) -> tuple[bytes, bytes, bytes]:
    """Make calls that use threads, if nobody else does; the same bits each time."""
    rng = np.random.default_rng(1)
    weights, gradient = draw(rng, (3, 3, 64, 64), dtype), draw(rng, (2, 56, 56, 64), dtype)
    ends = np.arange(0, 113, 2)
    arguments = gradient.shape, weights, gradient, [1, 1, 1, 1], "SAME"
    return (
        conv2d_backprop_input(*arguments, algorithm="direct").tobytes(),
        conv2d_backprop_input(*arguments).tobytes(),
        fractional_avg_pool_grad([2, 112, 112, 64], gradient, ends, ends).tobytes(),
    )


def resident() -> int:
    """Give the memory of this process in bytes; 0 where it is not known."""
    gc.collect()
    try:
        return 4096 * int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0


def main(seconds: float, dtypes: list[str]) -> None:
    warmup(dtypes)
    expected = {dtype: large(dtype) for dtype in dtypes if dtype in WINOGRAD}
    start, counts = time.monotonic(), [0, 0]
    marks: list[tuple[float, int]] = []

    def work(seed: int) -> None:
        rng, number = np.random.default_rng(seed), 0
        while time.monotonic() < start + seconds:
            counts[one(rng, dtypes)] += 1
            number += 1
            if number % 50 == 0:
                dtype = str(rng.choice(list(expected)))
                assert large(dtype) == expected[dtype]
            if seed == 0 and time.monotonic() > start + seconds * (1 + len(marks)) / 12:
                marks.append((time.monotonic() - start, resident()))

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work, seed) for seed in range(THREADS)]:
            done.result()
    after_warm_up = max(size for moment, size in marks if moment <= seconds / 2)
    at_the_end = min(size for moment, size in marks if moment > seconds * 3 / 4)
    growth = at_the_end - after_warm_up
    sys.stdout.write(
        f"{counts[1]} valid and {counts[0]} invalid calls; memory in MB: "
        f"{' '.join(str(size // 2**20) for _, size in marks)}\n"
    )
    assert growth <= GROWTH, f"memory grew by {growth} bytes"
    assert min(counts) > 0


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:] or list(DTYPES))
