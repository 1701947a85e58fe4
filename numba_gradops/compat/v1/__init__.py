"""TensorFlow's dotted path ``compat.v1``."""

from ... import raw_ops
from . import nn

__all__ = ["nn", "raw_ops"]
