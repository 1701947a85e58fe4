"""TensorFlow's dotted path ``compat.v1.nn``."""

from ..._conv2d import conv2d_backprop_input

__all__ = ["conv2d_backprop_input"]
