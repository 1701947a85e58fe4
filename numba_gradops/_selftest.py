"""``python -m numba_gradops selftest``: checks of this installation on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import _dtypes, _reference, conv2d_backprop_input, fractional_avg_pool_grad
from ._warmup import dtype_named

# Largest error allowed, relative to the largest exact value: the last bit of a half; for the
# rest, what a sum of a few hundred products can gather. Integers are exact.
_TOLERANCE = {
    "float16": 2**-11,
    "bfloat16": 2**-8,
    "float32": 3e-6,
    "float64": 1e-14,
    "int32": 0.0,
    "int64": 0.0,
}


def _convolutions() -> Iterator[tuple[str, dict[str, Any]]]:
    """List convolutions with every feature, and unequal sides everywhere."""
    wide = [[0, 0], [2, 1], [0, 3], [0, 0]]
    for what, sizes, window, outputs, strides, dilations, padding in (
        ("SAME", (2, 7, 9, 12), (3, 5, 12, 6), (7, 9), (1, 1), (1, 1), "SAME"),
        ("VALID, strides", (2, 11, 9, 3), (3, 2, 3, 9), (5, 3), (2, 3), (1, 1), "VALID"),
        ("explicit padding", (1, 6, 8, 9), (2, 3, 9, 5), (8, 9), (1, 1), (1, 1), wide),
        ("dilated", (1, 9, 11, 8), (3, 3, 8, 4), (5, 11), (2, 1), (2, 3), "SAME"),
        ("grouped", (2, 5, 7, 24), (3, 3, 8, 12), (5, 7), (1, 1), (1, 1), "SAME"),
        ("depthwise", (2, 5, 7, 16), (3, 3, 1, 32), (3, 4), (2, 2), (1, 1), "SAME"),
        ("tail without gradient", (1, 8, 8, 2), (2, 2, 2, 3), (2, 2), (4, 5), (1, 1), "VALID"),
    ):
        yield (
            what,
            {
                "input_sizes": sizes,
                "filter": window,
                "out_backprop": (sizes[0], *outputs, window[3]),
                "strides": (1, *strides, 1),
                "padding": padding,
                "dilations": (1, *dilations, 1),
            },
        )


def _to_channels_first(arguments: dict[str, Any]) -> dict[str, Any]:
    order = (0, 3, 1, 2)
    moved = dict(arguments)
    for name in ("input_sizes", "strides", "dilations", "padding"):
        if not isinstance(moved[name], str):
            moved[name] = [moved[name][axis] for axis in order]
    moved["out_backprop"] = arguments["out_backprop"].transpose(order)
    return moved | {"data_format": "NCHW"}


def _is_right(result: Any, exact: Any, dtype: Any) -> bool:
    if result.dtype != dtype or result.shape != exact.shape:
        return False
    if np.issubdtype(dtype, np.integer):
        return bool((result == np.trunc(exact)).all())
    error = np.abs(result.astype(np.float64) - exact).max()
    return bool(error <= _TOLERANCE[dtype.name] * np.abs(exact).max())


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    values = rng.standard_normal(shape)
    return (values * 100 if np.issubdtype(dtype, np.integer) else values).astype(dtype)


def _checks(name: str, device: str | None) -> Iterator[tuple[str, bool]]:
    dtype = dtype_named(name)
    rng = np.random.default_rng(0)
    if name in _dtypes.CONV2D:
        for what, shapes in _convolutions():
            arguments = shapes | {
                key: _draw(rng, shapes[key], dtype) for key in ("filter", "out_backprop")
            }
            for call in (arguments, _to_channels_first(arguments)):
                result = conv2d_backprop_input(**call, device=device)
                exact = _reference.conv2d_backprop_input(**call)
                layout = call.get("data_format", "NHWC")
                yield (
                    f"conv2d_backprop_input {name} {layout} {what}",
                    _is_right(result, exact, dtype),
                )
    if name in _dtypes.POOL:
        for what, overlapping in (("", False), (" overlapping", True)):
            gradient = _draw(rng, (2, 4, 3, 5), dtype)
            pool = ((2, 7, 10, 5), gradient, [0, 1, 3, 4, 7], [0, 3, 6, 10], overlapping)
            result = fractional_avg_pool_grad(*pool, device=device)
            exact = _reference.fractional_avg_pool_grad(*pool)
            yield f"fractional_avg_pool_grad {name}{what}", _is_right(result, exact, dtype)


def run(device: str | None = None) -> bool:
    """Check both functions in every dtype; print what fails and a summary."""
    passed = failed = 0
    for name in dict.fromkeys(_dtypes.CONV2D + _dtypes.POOL):
        try:
            dtype_named(name)
        except ImportError:
            print(f"skipped {name}: ml_dtypes is not installed")
            continue
        for what, right in _checks(name, device):
            passed, failed = passed + right, failed + (not right)
            if not right:
                print(f"WRONG {what}")
    print(f"{passed} passed, {failed} failed")
    return failed == 0
