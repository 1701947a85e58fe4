"""fractional_avg_pool_grad; unless said: float32, two threads, into given memory."""

from . import _calls
from ._timing import Timed
from .layers import POOLS

BY_NAME = {layer.name: layer for layer in POOLS}


class Layers(Timed):
    """The layers that are compared with TensorFlow."""

    params = (tuple(BY_NAME), (1, 2))
    param_names = ("layer", "threads")

    def setup(self, layer: str, threads: int) -> None:
        self.call = _calls.pooling(BY_NAME[layer], threads=threads)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "pooling, layers, threads"


class Types(Timed):
    """Dtypes, without and with overlapping cells."""

    params = (
        ("float16", "float32", "float64", "int32"),
        ("cells apart", "cells overlapping"),
    )
    param_names = ("dtype", "overlap")

    def setup(self, dtype: str, overlap: str) -> None:
        layer = BY_NAME["pool 28x256"]._replace(overlapping=overlap == "cells overlapping")
        self.call = _calls.pooling(layer, dtype, threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "pooling, dtypes, overlap"


class NewResult(Timed):
    """A result in new memory, whose pages the system has to clear first."""

    params = ("pool 112x64",)
    param_names = ("layer",)

    def setup(self, layer: str) -> None:
        self.call = _calls.pooling(BY_NAME[layer], threads=2, new_result=True)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "pooling, result in new memory"
