"""Two gradients of TensorFlow without TensorFlow, on NumPy arrays.

* :func:`fractional_avg_pool_grad`: fractional average pooling, with respect to its input
* :func:`conv2d_backprop_input`: 2-D convolution, with respect to its input

TensorFlow's dotted paths work too: ``import numba_gradops as tf`` and ``tf.raw_ops...`` or
``tf.compat.v1.nn...`` is a migration.
"""

from . import compat, raw_ops
from ._config import show_config
from ._conv2d import conv2d_backprop_input
from ._fractional_pool import fractional_avg_pool_grad
from ._warmup import warmup

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "compat",
    "conv2d_backprop_input",
    "fractional_avg_pool_grad",
    "raw_ops",
    "show_config",
    "warmup",
]
