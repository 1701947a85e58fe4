"""Compile ahead of the first real call, for images of containers and for clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from . import _arguments, _device, _dtypes
from ._conv2d import conv2d_backprop_input
from ._fork import no_fork
from ._fractional_pool import fractional_avg_pool_grad

_DEFAULT = ("float32", "float64")


def dtype_named(name: str) -> np.dtype[Any]:
    """Give the dtype of this name; bfloat16 needs ml_dtypes, else it is an ImportError."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as missing:
            msg = "bfloat16 needs ml_dtypes: pip install 'numba-gradops[bfloat16]'"
            raise ImportError(msg) from missing
        name = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def _convolution(
    dtype: np.dtype[Any],
    device: str | None,
    channels: int,
    side: int,
    outs: int,
    *,
    groups: int = 1,
    window: int = 3,
    stride: int = 1,
    algorithm: str = "direct",
    data_format: str = "NHWC",
) -> Callable[[], object]:
    cells = -(-side // stride)
    sizes, cut, strides = (1, side, side, channels), (1, cells, cells, outs), [1, stride, stride, 1]
    if data_format == "NCHW":
        sizes, cut, strides = (
            (1, channels, side, side),
            (1, outs, cells, cells),
            [1, 1, stride, stride],
        )
    return partial(
        conv2d_backprop_input,
        sizes,
        np.ones((window, window, channels // groups, outs), dtype),
        np.ones(cut, dtype),
        strides,
        "SAME",
        data_format=data_format,
        device=device,
        algorithm=algorithm,
    )


def _convolutions(
    dtype: np.dtype[Any], device: str | None
) -> Iterator[tuple[str, Callable[[], object]]]:
    """List a small call for each kind of loop that convolutions of this dtype can take."""
    call = partial(_convolution, dtype, device)
    yield "a few products", call(8, 2, 2)
    if dtype.kind == "i":
        return
    # 34 channels: some fill the vectors of any processor, and some are left over. So do the 36
    # elements of a block of the result.
    yield "many channels", call(34, 12, 8)
    yield "many channels, NCHW", call(34, 12, 8, data_format="NCHW")
    yield "a large stride", call(1, 96, 16, window=6, stride=6)
    for channels in (1, 2, 3, 4):
        yield f"{channels} channels", call(channels, 12, 64)
    yield "depthwise", call(8, 12, 8, groups=8)
    yield "depthwise, NCHW", call(8, 12, 8, groups=8, data_format="NCHW")
    for size in (2, 4, 8):
        for data_format in ("NHWC", "NCHW"):
            group = call(2 * size, 12, 2 * size, groups=2, data_format=data_format)
            yield f"groups of {size}, {data_format}", group
    if dtype.name in ("float32", "float64"):
        yield "Winograd", call(64, 12, 64, algorithm="winograd")
    else:
        # Too many stride classes for tasks to copy for themselves, as in layers of many channels.
        yield "a widened gradient", call(37, 72, 8, window=1, stride=9)


def _steps(name: str, device: str | None) -> list[tuple[str, Callable[[], object]]]:
    """List the calls that compile all that `name` needs."""
    dtype = dtype_named(name)
    steps = []
    if name in _dtypes.CONV2D:
        steps += [
            (f"conv2d_backprop_input {name}, {what}", call)
            for what, call in _convolutions(dtype, device)
        ]
    if name in _dtypes.POOL:
        gradient = np.ones((1, 2, 2, 8), dtype)
        for what, ends in (("", [0, 1, 2]), (", cells out of order", [0, 2, 1])):
            pool = partial(
                fractional_avg_pool_grad, gradient.shape, gradient, ends, ends, device=device
            )
            steps.append((f"fractional_avg_pool_grad {name}{what}", pool))
    return steps


def warmup(
    dtypes: Iterable[str] = _DEFAULT,
    *,
    device: str | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> None:
    """Compile both functions for the given dtypes, so that later calls do not have to.

    On the CPU what large calls need is compiled too, whatever the number of threads; on a CUDA
    device every kernel but those for 2**31 elements or more, which takes a minute a dtype. With
    the cache on (the default) later processes profit too, on the same kind of device.

    Parameters
    ----------
    dtypes : iterable of str, default ('float32', 'float64')
        Names of dtypes; a name that only one of the functions takes is compiled for that one.
    device : {None, 'cpu', 'cuda', 'cuda:N'}, optional
        Device to compile for; None is the CPU.
    progress : callable, optional
        Called as ``progress(done, total, what)`` before each step, and once at the end.

    Raises
    ------
    ValueError
        If a dtype is not one that this package computes in.
    ImportError
        If bfloat16 is wanted and ml_dtypes is not installed.
    RuntimeError
        If the device is not available.

    Examples
    --------
    >>> from numba_gradops import warmup
    >>> warmup(["float32"])
    """
    names = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    supported = tuple(dict.fromkeys(_dtypes.CONV2D + _dtypes.POOL))
    for name in names:
        if name not in supported:
            msg = (
                f"dtypes must be names among {', '.join(supported)}; "
                f"got {_arguments.describe(name)}"
            )
            raise ValueError(msg)
    if device is not None and device != "cpu":
        found = _device.backend(device, {})
        steps = [step for name in names for step in found.warmup_steps(dtype_named(name))]
    else:
        with no_fork:
            from .cpu import _spread  # imports Numba

        steps = [step for name in names for step in _steps(name, device)]
        steps.append(("threads", _spread.compile_once))
    for done, (what, call) in enumerate(steps):
        if progress:
            progress(done, len(steps), what)
        call()
    if progress:
        progress(len(steps), len(steps), "done")
