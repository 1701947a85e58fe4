"""How much memory a call needs beside its arguments and its result, at its peak.

Linux only: elsewhere these are skipped.
"""

from pathlib import Path

from . import _calls, _peak_memory
from .layers import LAYERS, POOLS

_CONVOLUTIONS = {layer.name: layer for layer in LAYERS}
_POOLINGS = {layer.name: layer for layer in POOLS}


def _skip_unless_measurable() -> None:
    if not Path("/proc/self/clear_refs").exists():
        msg = "the system does not let a process reset its peak"
        raise NotImplementedError(msg)  # airspeed velocity skips


class Convolution:
    """Reordered filters, transformed tiles, the gradient in another layout."""

    params = (("resnet 28",), ("direct", "winograd"), ("NHWC", "NCHW"))
    param_names = ("layer", "algorithm", "data_format")
    unit = "bytes"

    def setup(self, layer: str, algorithm: str, data_format: str) -> None:
        _skip_unless_measurable()
        chosen = _CONVOLUTIONS[layer]._replace(data_format=data_format)
        _calls.convolution(chosen, threads=2, algorithm=algorithm)

    def track_call(self, layer: str, algorithm: str, data_format: str) -> int:
        return _peak_memory.measure("convolution", layer, algorithm, data_format)["beside"]

    track_call.pretty_name = "memory beside arguments and result, convolution, 2 threads"


class Pooling:
    """fractional_avg_pool_grad needs next to nothing."""

    params = ("pool 112x64",)
    param_names = ("layer",)
    unit = "bytes"

    def setup(self, layer: str) -> None:
        _skip_unless_measurable()
        _calls.pooling(_POOLINGS[layer], threads=2)

    def track_call(self, layer: str) -> int:
        return _peak_memory.measure("pooling", layer, "", "")["beside"]

    track_call.pretty_name = "memory beside arguments and result, pooling, 2 threads"


class Baseline:
    """What is there before a call: Python, NumPy, Numba, compiled code, arguments and result."""

    unit = "bytes"

    def setup(self) -> None:
        _skip_unless_measurable()

    def track_process(self) -> int:
        return _peak_memory.measure("convolution", "resnet 28", "direct", "NHWC")["before"]

    track_process.pretty_name = "whole process before a call, arguments of resnet 28 included"
