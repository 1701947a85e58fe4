"""conv2d_backprop_input, float32 and NHWC unless said, into given memory unless said."""

from . import _calls
from ._timing import Timed
from .layers import LAYERS, OTHERS

BY_NAME = {layer.name: layer for layer in (*LAYERS, *OTHERS)}


class Layers(Timed):
    """The layers that are compared with TensorFlow and PyTorch."""

    params = ([layer.name for layer in LAYERS], [1, 2])
    param_names = ("layer", "threads")

    def setup(self, layer: str, threads: int) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=threads)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "layers of networks"


class OtherLayers(Timed):
    """Kinds of layers on which an engine made for the others could fall off a cliff."""

    params = [layer.name for layer in OTHERS]
    param_names = ("layer",)

    def setup(self, layer: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "groups, dilation and odd shapes, 2 threads"


class Algorithms(Timed):
    """Layers that all algorithms can compute."""

    params = (
        ["resnet 56", "resnet 14", "resnet 7", "down 3x3/2"],
        ["auto", "direct", "winograd"],
    )
    param_names = ("layer", "algorithm")

    def setup(self, layer: str, algorithm: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2, algorithm=algorithm)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "algorithms, 2 threads"


class Types(Timed):
    """Dtypes and layouts, on a layer of many channels and on a first layer."""

    params = (
        ["resnet 14", "first 5x5 gray"],
        ["float16", "bfloat16", "float32", "float64", "int32"],
        ["NHWC", "NCHW"],
    )
    param_names = ("layer", "dtype", "data_format")

    def setup(self, layer: str, dtype: str, data_format: str) -> None:
        layer = BY_NAME[layer]._replace(data_format=data_format)
        self.call = _calls.convolution(layer, dtype, threads=2)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "dtypes and layouts, 2 threads"


class NewResult(Timed):
    """A result in new memory, whose pages the system has to clear first."""

    params = ["unet", "1x1 256-64"]
    param_names = ("layer",)

    def setup(self, layer: str) -> None:
        self.call = _calls.convolution(BY_NAME[layer], threads=2, new_result=True)

    def time_layer(self, *_: object) -> None:
        self.call()

    time_layer.pretty_name = "result in new memory, 2 threads"
