"""The same call of TensorFlow and PyTorch, made from the arguments of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from suites.layers import ConvLayer

Call = Callable[[], Any]


def tensorflow_calls(threads: int) -> Callable[[Any, dict[str, Any]], Call] | None:
    """Give what makes a TensorFlow call of our arguments; None if it is not installed."""
    try:
        import tensorflow as tf
    except ImportError:
        return None
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def make(layer: Any, arguments: dict[str, Any]) -> Call:
        tensors = {
            name: tf.constant(value) if isinstance(value, np.ndarray) else value
            for name, value in arguments.items()
        }
        if isinstance(layer, ConvLayer):
            tensors["input_sizes"] = tf.constant(arguments["input_sizes"], tf.int32)
            return lambda: tf.compat.v1.nn.conv2d_backprop_input(**tensors)
        return lambda: tf.raw_ops.FractionalAvgPoolGrad(**tensors)

    return make


def torch_calls(
    threads: int, device: str = "cpu"
) -> Callable[[Any, dict[str, Any]], Call | None] | None:
    """Give what makes a PyTorch call of our arguments; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)

    def tensor(array: np.ndarray) -> Any:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(array).to(device)

    def make(layer: Any, arguments: dict[str, Any]) -> Call | None:
        if not isinstance(layer, ConvLayer):
            return None  # no fractional average pooling there
        last = arguments["data_format"] == "NHWC"
        order = (0, 3, 1, 2)
        gradient = tensor(arguments["out_backprop"])
        weights = tensor(np.ascontiguousarray(arguments["filter"].transpose(3, 2, 0, 1)))
        sizes = list(arguments["input_sizes"])
        strides, dilations = arguments["strides"], arguments["dilations"]
        if last:
            gradient = gradient.permute(order)  # channels_last in memory, as TensorFlow's NHWC
            weights = weights.contiguous(memory_format=torch.channels_last)
            sizes = [sizes[axis] for axis in order]
            strides, dilations = ([v[axis] for axis in order] for v in (strides, dilations))
        pads = []
        for axis in (2, 3):
            size, stride = sizes[axis], strides[axis]
            span = (weights.shape[axis] - 1) * dilations[axis] + 1
            need = max(0, (gradient.shape[axis] - 1) * stride + span - size)
            pads.append(need if layer.padding == "SAME" else 0)
        # SAME may need one more after than before: compute a larger input and cut it.
        grown = [sizes[0], sizes[1], *(sizes[2 + i] + pads[i] % 2 for i in (0, 1))]
        before = [pad // 2 for pad in pads]
        cut = [slice(0, size) for size in sizes[2:]]
        # Only its shape and layout are looked at; not a part of what is timed.
        forward_input = torch.empty(
            grown,
            dtype=gradient.dtype,
            device=device,
            memory_format=torch.channels_last if last else torch.contiguous_format,
        )

        def call() -> Any:
            result = torch.ops.aten.convolution_backward(
                gradient,
                forward_input,
                weights,
                None,
                strides[2:],
                before,
                dilations[2:],
                False,
                [0, 0],
                layer.groups,
                [True, False, False],
            )[0]
            return result[:, :, cut[0], cut[1]]

        return call

    return make


def to_numpy(result: Any, data_format: str) -> np.ndarray:
    """Bring a peer's result to our layout, in float64."""
    if type(result).__module__.startswith("torch"):
        array = result.double().cpu().numpy()
        return array.transpose(0, 2, 3, 1) if data_format == "NHWC" else array
    return np.asarray(result).astype(np.float64)
