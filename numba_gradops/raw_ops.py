"""TensorFlow's raw ops by their own names: keyword arguments only, as there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from . import _arguments, _conv2d, _fractional_pool

__all__ = ["Conv2DBackpropInput", "FractionalAvgPoolGrad"]


def FractionalAvgPoolGrad(  # noqa: N802 - TensorFlow's name and signature
    *,
    orig_input_tensor_shape: Sequence[int] | NDArray[Any],
    out_backprop: ArrayLike,
    row_pooling_sequence: Sequence[int] | NDArray[Any],
    col_pooling_sequence: Sequence[int] | NDArray[Any],
    overlapping: bool | None = False,
    name: object = None,
    device: str | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute the gradient of fractional average pooling with respect to its input.

    The keyword-only spelling of :func:`numba_gradops.fractional_avg_pool_grad`, which describes
    it in full.

    Parameters
    ----------
    orig_input_tensor_shape : sequence of 4 ints
        Shape of the pooled input.
    out_backprop : array of shape (batch, cell_rows, cell_cols, depth)
        Gradient with respect to the pooling's output.
    row_pooling_sequence : sequence of at least cell_rows + 1 ints
        Where each cell row starts.
    col_pooling_sequence : sequence of at least cell_cols + 1 ints
        Where each cell column starts.
    overlapping : bool, default False
        Whether a cell includes the first row and column of the next one.
    name : object, optional
        Ignored.
    device : {None, 'cpu', 'cuda', 'cuda:N'}, optional
        Where to compute; not in TensorFlow.
    out : ndarray, optional
        Array to write the result into; not in TensorFlow.

    Returns
    -------
    ndarray of shape `orig_input_tensor_shape`
        The gradient with respect to the input.

    Examples
    --------
    >>> from numba_gradops import raw_ops
    >>> raw_ops.FractionalAvgPoolGrad(
    ...     orig_input_tensor_shape=[1, 1, 3, 1],
    ...     out_backprop=[[[[3.0]]]],
    ...     row_pooling_sequence=[0, 1],
    ...     col_pooling_sequence=[0, 3],
    ... ).ravel()
    array([1., 1., 1.], dtype=float32)
    """
    return _fractional_pool.fractional_avg_pool_grad(
        orig_input_tensor_shape,
        out_backprop,
        row_pooling_sequence,
        col_pooling_sequence,
        overlapping,
        name,
        device=device,
        out=out,
    )


def Conv2DBackpropInput(  # noqa: N802 - TensorFlow's name and signature
    *,
    input_sizes: Sequence[int] | NDArray[Any],
    filter: ArrayLike,
    out_backprop: ArrayLike,
    strides: Sequence[int],
    padding: str | bytes,
    use_cudnn_on_gpu: bool | None = True,
    explicit_paddings: Sequence[int] | None = [],
    data_format: str | bytes | None = "NHWC",
    dilations: Sequence[int] | None = [1, 1, 1, 1],
    name: object = None,  # noqa: ARG001 - TensorFlow's, without effect there too
    device: str | None = None,
    algorithm: str = "auto",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute the gradient of a 2-D convolution with respect to its input.

    The keyword-only spelling of :func:`numba_gradops.conv2d_backprop_input`, which describes it
    in full; explicit padding is written in another way here.

    Parameters
    ----------
    input_sizes : sequence of 4 or 2 ints
        Shape of the convolution's input, or its (height, width).
    filter : array of shape (filter_rows, filter_cols, in_channels / groups, out_channels)
        Weights.
    out_backprop : array of shape (batch, out_rows, out_cols, out_channels)
        Gradient with respect to the convolution's output, in `data_format` order.
    strides : list or tuple of 4 ints
        Strides in `data_format` order.
    padding : {'SAME', 'VALID', 'EXPLICIT'}
        Padding rule; 'EXPLICIT' needs `explicit_paddings`.
    use_cudnn_on_gpu : bool, default True
        Ignored.
    explicit_paddings : list of 8 ints, default []
        Padding before and after each dimension, in `data_format` order, for 'EXPLICIT'.
    data_format : {'NHWC', 'NCHW'}, default 'NHWC'
        Order of the dimensions.
    dilations : list or tuple of 4 ints, default [1, 1, 1, 1]
        Distance between filter taps, in `data_format` order.
    name : object, optional
        Ignored.
    device : {None, 'cpu', 'cuda', 'cuda:N'}, optional
        Where to compute; not in TensorFlow.
    algorithm : {'auto', 'direct', 'winograd'}, default 'auto'
        How to compute; not in TensorFlow.
    out : ndarray, optional
        Array to write the result into; not in TensorFlow.

    Returns
    -------
    ndarray of the shape that `input_sizes` means
        The gradient with respect to the input.

    Examples
    --------
    >>> from numba_gradops import raw_ops
    >>> raw_ops.Conv2DBackpropInput(
    ...     input_sizes=[1, 1, 3, 1],
    ...     filter=[[[[1.0]], [[2.0]], [[3.0]]]],
    ...     out_backprop=[[[[1.0], [1.0], [1.0]]]],
    ...     strides=[1, 1, 1, 1],
    ...     padding="EXPLICIT",
    ...     explicit_paddings=[0, 0, 0, 0, 1, 1, 0, 0],
    ... ).ravel()
    array([3., 6., 5.], dtype=float32)
    """
    with _arguments.READING:
        pads = _arguments.explicit_paddings(padding, explicit_paddings)
    return _conv2d.compute(
        input_sizes,
        filter,
        out_backprop,
        strides,
        pads,
        use_cudnn_on_gpu,
        data_format,
        dilations,
        device,
        algorithm,
        out,
    )
