"""The layers that speed is measured on: one list for all benchmarks.

Names stand for shapes in the history of measurements: a new shape gets a new name.
"""

from ._checkout import layers

ConvLayer, PoolLayer = layers.ConvLayer, layers.PoolLayer


def _layer(name, batch, rows, cols, channels, k_rows, k_cols, outs, stride, padding, **more):
    shape = (batch, rows, cols, channels)
    return ConvLayer(name, shape, (k_rows, k_cols), outs, stride, padding=padding, **more)


LAYERS = (
    _layer("vgg", 4, 56, 56, 256, 3, 3, 256, 1, "SAME"),
    _layer("resnet 56", 8, 56, 56, 64, 3, 3, 64, 1, "SAME"),
    _layer("resnet 28", 8, 28, 28, 128, 3, 3, 128, 1, "SAME"),
    _layer("resnet 14", 8, 14, 14, 256, 3, 3, 256, 1, "SAME"),
    _layer("resnet 7", 8, 7, 7, 512, 3, 3, 512, 1, "SAME"),
    _layer("unet", 2, 128, 128, 64, 3, 3, 64, 1, "SAME"),
    _layer("first 7x7/2", 8, 224, 224, 3, 7, 7, 64, 2, "SAME"),
    _layer("first 11x11/4", 8, 224, 224, 3, 11, 11, 64, 4, "VALID"),
    _layer("first 5x5 gray", 32, 28, 28, 1, 5, 5, 32, 1, "SAME"),
    _layer("down 3x3/2", 8, 56, 56, 128, 3, 3, 128, 2, "SAME"),
    _layer("1x1 64-256", 8, 56, 56, 64, 1, 1, 256, 1, "SAME"),
    _layer("1x1 256-64", 8, 56, 56, 256, 1, 1, 64, 1, "SAME"),
    _layer("1x1/2 256-512", 8, 56, 56, 256, 1, 1, 512, 2, "SAME"),
    _layer("dcgan 5x5/2", 8, 32, 32, 64, 5, 5, 128, 2, "SAME"),
    _layer("dcgan last 5x5/2", 8, 64, 64, 3, 5, 5, 64, 2, "SAME"),
    _layer("odd 3x3/2", 2, 31, 29, 5, 3, 3, 37, 2, "SAME"),
    _layer("odd 5x3/3", 2, 31, 29, 37, 5, 3, 29, 3, "VALID"),
)

# Kinds of layers on which an engine made for the ones above could fall off a cliff.
OTHERS = (
    _layer("depthwise 32", 8, 112, 112, 32, 3, 3, 32, 1, "SAME", groups=32),
    _layer("depthwise 128", 8, 56, 56, 128, 3, 3, 128, 1, "SAME", groups=128),
    _layer("depthwise 512", 8, 14, 14, 512, 3, 3, 512, 1, "SAME", groups=512),
    _layer("depthwise 96/2", 8, 56, 56, 96, 5, 5, 96, 2, "SAME", groups=96),
    _layer("groups 32x4", 8, 56, 56, 128, 3, 3, 128, 1, "SAME", groups=32),
    _layer("groups 32x8", 8, 28, 28, 256, 3, 3, 256, 1, "SAME", groups=32),
    _layer("groups 2x48", 8, 27, 27, 96, 5, 5, 256, 1, "SAME", groups=2),
    _layer("dilation 2", 4, 28, 28, 256, 3, 3, 256, 1, "SAME", dilation=2),
    _layer("dilation 12", 2, 65, 65, 256, 3, 3, 256, 1, "SAME", dilation=12),
    _layer("1x7", 8, 17, 17, 192, 1, 7, 192, 1, "SAME"),
    _layer("7x1", 8, 17, 17, 192, 7, 1, 192, 1, "SAME"),
    _layer("16x16/8", 1, 512, 512, 21, 16, 16, 21, 8, "SAME"),
    _layer("4x4/2", 8, 64, 64, 64, 4, 4, 128, 2, "SAME"),
    _layer("batch 1", 1, 56, 56, 64, 3, 3, 64, 1, "SAME"),
    _layer("odd channels", 4, 28, 28, 67, 3, 3, 101, 1, "SAME"),
)

POOLS = (
    PoolLayer("pool 112x64", (8, 112, 112, 64), 1.44),
    PoolLayer("pool 56x32", (32, 56, 56, 32), 1.6),
    PoolLayer("pool 224x16", (4, 224, 224, 16), 1.3),
    PoolLayer("pool 28x256", (16, 28, 28, 256), 1.44),
    PoolLayer("pool 112x3", (8, 112, 112, 3), 1.5),
)

# Calls that are nothing but overhead, and the first calls of a process.
TINY_CONVOLUTION = _layer("tiny", 1, 4, 4, 2, 3, 3, 2, 1, "SAME")
TINY_POOL = PoolLayer("tiny pool", (1, 8, 8, 2), 2.0)
FIRST_CONVOLUTION = _layer("first call", 1, 28, 28, 64, 3, 3, 64, 1, "SAME")
FIRST_POOL = PoolLayer("first pool", (1, 28, 28, 64), 1.44)

# Large enough to fill a data-center GPU; the strided layers stand beside unstrided ones.
CUDA_LAYERS = (
    _layer("resnet 56", 128, 56, 56, 64, 3, 3, 64, 1, "SAME"),
    _layer("resnet 28", 128, 28, 28, 128, 3, 3, 128, 1, "SAME"),
    _layer("resnet 14", 128, 14, 14, 256, 3, 3, 256, 1, "SAME"),
    _layer("resnet 7", 128, 7, 7, 512, 3, 3, 512, 1, "SAME"),
    _layer("wide 64", 32, 64, 64, 512, 3, 3, 512, 1, "SAME"),
    _layer("down 3x3/2", 128, 56, 56, 128, 3, 3, 128, 2, "SAME"),
    _layer("down 3x3/2 256", 128, 28, 28, 256, 3, 3, 256, 2, "SAME"),
    _layer("1x1 64-256", 128, 56, 56, 64, 1, 1, 256, 1, "SAME"),
    _layer("1x1/2 256-512", 128, 56, 56, 256, 1, 1, 512, 2, "SAME"),
    _layer("dcgan 5x5/2", 64, 32, 32, 64, 5, 5, 128, 2, "SAME"),
    _layer("first 7x7/2", 128, 224, 224, 3, 7, 7, 64, 2, "SAME"),
    _layer("groups 32x8", 128, 28, 28, 256, 3, 3, 256, 1, "SAME", groups=32),
    _layer("depthwise 128", 128, 56, 56, 128, 3, 3, 128, 1, "SAME", groups=128),
    _layer("dilation 2", 32, 28, 28, 256, 3, 3, 256, 1, "SAME", dilation=2),
    _layer("odd channels", 64, 28, 28, 67, 3, 3, 101, 1, "SAME"),
)
CUDA_POOLS = (
    PoolLayer("pool 224x64", (64, 224, 224, 64), 2**0.5),
    PoolLayer("pool 112x128", (64, 112, 112, 128), 1.44),
    PoolLayer("pool 56x256", (256, 56, 56, 256), 1.73),
    PoolLayer("pool 224x64 overl.", (64, 224, 224, 64), 2**0.5, overlapping=True),
    PoolLayer("pool 111x33", (64, 111, 97, 33), 1.5),
)
