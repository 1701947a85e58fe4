"""How much memory a call needs beside its arguments and its result, at its peak.

With glibc on Linux only: elsewhere these are skipped. In MiB to two decimals: pages come and go.
"""

from pathlib import Path

from . import _calls, _peak_memory
from ._allocator import free_at_once
from .layers import LAYERS, POOLS

_CONVOLUTIONS = {layer.name: layer for layer in LAYERS}
_POOLINGS = {layer.name: layer for layer in POOLS}


def _skip_unless_measurable() -> None:
    free_at_once()
    if not Path("/proc/self/clear_refs").exists():
        msg = "the system does not let a process reset its peak"
        raise NotImplementedError(msg)  # airspeed velocity skips


def _mebibytes(which: str, *what: str) -> float:
    return round(_peak_memory.measure(*what)[which] / 2**20, 2)


class Convolution:
    """Reordered filters, transformed tiles, the gradient in another layout."""

    params = (("resnet 28",), ("direct", "winograd"), ("NHWC", "NCHW"))
    param_names = ("layer", "algorithm", "data_format")
    unit = "MiB"

    def setup(self, layer: str, algorithm: str, data_format: str) -> None:
        _skip_unless_measurable()
        chosen = _CONVOLUTIONS[layer]._replace(data_format=data_format)
        _calls.convolution(chosen, threads=2, algorithm=algorithm)

    def track_call(self, layer: str, algorithm: str, data_format: str) -> float:
        return _mebibytes("beside", "convolution", layer, algorithm, data_format)

    track_call.pretty_name = "convolution, extra memory of a call"


class Pooling:
    """fractional_avg_pool_grad needs next to nothing."""

    params = ("pool 112x64",)
    param_names = ("layer",)
    unit = "MiB"

    def setup(self, layer: str) -> None:
        _skip_unless_measurable()
        _calls.pooling(_POOLINGS[layer], threads=2)

    def track_call(self, layer: str) -> float:
        return _mebibytes("beside", "pooling", layer, "", "")

    track_call.pretty_name = "pooling, extra memory of a call"


class Baseline:
    """What is there before a call: Python, NumPy, Numba, compiled code, arguments and result."""

    unit = "MiB"

    def setup(self) -> None:
        _skip_unless_measurable()

    def track_process(self) -> float:
        return _mebibytes("before", "convolution", "resnet 28", "direct", "NHWC")

    track_process.pretty_name = "memory of the process before a call"
