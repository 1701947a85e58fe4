"""conv2d_backprop_input; unless said: float32, NHWC, two threads, into given memory."""

from . import _calls
from ._timing import Timed
from .layers import LAYERS, OTHERS

BY_NAME = {layer.name: layer for layer in (*LAYERS, *OTHERS)}


class Layers(Timed):
    """The layers that are compared with TensorFlow and PyTorch."""

    params = tuple(layer.name for layer in LAYERS)
    param_names = ("layer",)

    def setup(self, layer: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, layers of networks"


class OtherLayers(Timed):
    """Kinds of layers on which an engine made for the others could fall off a cliff."""

    params = (
        "depthwise 32",
        "depthwise 512",
        "depthwise 96/2",
        "groups 32x4",
        "groups 2x48",
        "dilation 12",
        "1x7",
        "16x16/8",
        "batch 1",
        "odd channels",
    )
    param_names = ("layer",)

    def setup(self, layer: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, other layers"


class Threads(Timed):
    """What a second thread gains: with many channels, with few, and where reading limits."""

    params = (("resnet 28", "first 7x7/2", "1x1 64-256"), (1, 2))
    param_names = ("layer", "threads")

    def setup(self, layer: str, threads: int) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=threads)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, threads"


class Algorithms(Timed):
    """Layers that all algorithms can compute."""

    params = (("resnet 56", "resnet 7", "down 3x3/2"), ("auto", "direct", "winograd"))
    param_names = ("layer", "algorithm")

    def setup(self, layer: str, algorithm: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2, algorithm=algorithm)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, algorithms"


class Types(Timed):
    """Dtypes, on a layer of many channels and on a first layer."""

    params = (
        ("resnet 14", "first 5x5 gray"),
        ("float16", "bfloat16", "float32", "float64", "int32"),
    )
    param_names = ("layer", "dtype")

    def setup(self, layer: str, dtype: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], dtype, threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, dtypes"


class Layouts(Timed):
    """Channels last and channels first."""

    params = (("resnet 56", "1x1 64-256"), ("NHWC", "NCHW"))
    param_names = ("layer", "data_format")

    def setup(self, layer: str, data_format: str) -> None:
        chosen = BY_NAME[layer]._replace(data_format=data_format)
        self.call = _calls.convolution(chosen, threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, layouts"


class NewResult(Timed):
    """A result in new memory, whose pages the system has to clear first."""

    params = ("unet", "1x1 256-64")
    param_names = ("layer",)

    def setup(self, layer: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2, new_result=True)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "convolution, result in new memory"
