"""The contract of fractional_avg_pool_grad: arguments, defaults, dtypes, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from . import _arguments, _device, _dtypes, _geometry


def fractional_avg_pool_grad(
    orig_input_tensor_shape: Sequence[int] | NDArray[Any],
    out_backprop: ArrayLike,
    row_pooling_sequence: Sequence[int] | NDArray[Any],
    col_pooling_sequence: Sequence[int] | NDArray[Any],
    overlapping: bool | None = False,
    name: object = None,  # noqa: ARG001 - TensorFlow's, without effect there too
    *,
    device: str | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute the gradient of fractional average pooling with respect to its input.

    Each gradient element is spread evenly over the cell of input elements that were averaged
    into it. Drop-in for ``tf.raw_ops.FractionalAvgPoolGrad``, with the same bits.

    Parameters
    ----------
    orig_input_tensor_shape : sequence of 4 ints
        Shape of the pooled input, (batch, rows, cols, depth): the shape of the result.
    out_backprop : array of shape (batch, cell_rows, cell_cols, depth)
        Gradient with respect to the pooling's output: float32, float64, int32 or int64 as in
        TensorFlow, and float16 or bfloat16. Any memory layout; lists of floats are float32,
        lists of ints int32 or, if one does not fit, int64.
    row_pooling_sequence : sequence of at least cell_rows + 1 ints
        Where each cell row starts, as the forward op returned it; the next entry ends it.
    col_pooling_sequence : sequence of at least cell_cols + 1 ints
        The same for columns.
    overlapping : bool, default False
        Whether a cell includes the first row and column of the next one.
    name : object, optional
        Ignored; TensorFlow's name of the operation.
    device : {None, 'cpu', 'cuda', 'cuda:N'}, optional
        Where to compute; None means where the arrays are.
    out : ndarray, optional
        Array to write the result into: its shape and dtype, and no memory shared with the
        gradient.

    Returns
    -------
    ndarray of shape `orig_input_tensor_shape`
        The gradient with respect to the input, of the gradient's dtype; `out` if it was given.

    Raises
    ------
    ValueError
        If a shape, a size, a sequence, the device's name or `out` does not fit.
    TypeError
        If an argument has a wrong type or an unsupported dtype.
    RuntimeError
        If the device is not available.
    MemoryError
        If the result cannot be allocated; the text says how many bytes it needs.

    See Also
    --------
    conv2d_backprop_input : The gradient of a convolution.

    Notes
    -----
    Cell (r, c) covers the rows ``row_pooling_sequence[r]`` to ``row_pooling_sequence[r+1] - 1``
    (to ``row_pooling_sequence[r+1]`` if overlapping), clipped to the image, and columns alike.
    With n its number of elements after clipping,

        result[b, y, x, d] = sum of out_backprop[b, r, c, d] / n  over the cells with (y, x)

    in float64, by ascending (r, c), cast once at the end: floats round to nearest, integers are
    cut toward zero, and an integer that does not fit becomes the lowest one, as on x86 in
    TensorFlow. Unlike TensorFlow, subnormal numbers are not flushed to zero, and a gradient
    whose batch or depth differs from the input's is refused.

    Sequences made by hand are taken as TensorFlow takes them: extra entries are ignored, rows in
    no cell get 0, cells that are empty or start past the end drop their gradient.

    =============================================  =======================================
    TensorFlow                                     here
    =============================================  =======================================
    ``tf.raw_ops.FractionalAvgPoolGrad(...)``      the same, ``tf`` being this package
    gradient of ``tf.nn.fractional_avg_pool``      this function on the sequences it returned
    ``InvalidArgumentError``                       ValueError, TypeError for dtypes
    ``ResourceExhaustedError``                     MemoryError
    =============================================  =======================================

    References
    ----------
    .. [1] TensorFlow, FractionalAvgPoolGrad,
       https://www.tensorflow.org/api_docs/python/tf/raw_ops/FractionalAvgPoolGrad

    Examples
    --------
    Two cells of 2 and 3 columns; each shares its gradient out:

    >>> import numpy as np
    >>> from numba_gradops import fractional_avg_pool_grad
    >>> gradient = np.array([4.0, 9.0], dtype=np.float32).reshape(1, 1, 2, 1)
    >>> fractional_avg_pool_grad([1, 1, 5, 1], gradient, [0, 1], [0, 2, 5]).ravel()
    array([2., 2., 3., 3., 3.], dtype=float32)
    """
    backend = _device.backend(device, {"out_backprop": out_backprop, "out": out})
    with _arguments.READING:
        overlaps = _arguments.flag(overlapping, "overlapping", default=False)
        shape = _arguments.shape_vector(
            orig_input_tensor_shape, "orig_input_tensor_shape", (4,), "(batch, rows, cols, depth)"
        )
        gradient = backend.arrays.tensor(out_backprop, "out_backprop", _dtypes.POOL, wide=True)
        at_most = max(gradient.shape, default=0) + 1
        row_starts = _arguments.integer_array(row_pooling_sequence, "row_pooling_sequence", at_most)
        col_starts = _arguments.integer_array(col_pooling_sequence, "col_pooling_sequence", at_most)
        geometry = _geometry.pool(shape, gradient.shape, row_starts, col_starts, overlaps)
        inputs = {
            "out_backprop": out_backprop,
            "orig_input_tensor_shape": orig_input_tensor_shape,
            "row_pooling_sequence": row_pooling_sequence,
            "col_pooling_sequence": col_pooling_sequence,
        }
        result = backend.arrays.result(out, shape, gradient.dtype, inputs)
    given = backend.fractional_avg_pool_grad(geometry, gradient, result)
    answer: NDArray[Any] = result if given is None else given
    return answer
