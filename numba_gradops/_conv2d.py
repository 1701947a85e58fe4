"""The contract of conv2d_backprop_input: arguments, defaults, dtypes, errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from . import _arguments, _device, _dtypes, _geometry

_SIZES = "the input's shape in data_format order, or its (height, width) alone"


def conv2d_backprop_input(
    input_sizes: Sequence[int] | NDArray[Any],
    filter: ArrayLike | None = None,
    out_backprop: ArrayLike | None = None,
    strides: Sequence[int] | None = None,
    padding: str | bytes | Sequence[Sequence[int]] | None = None,
    use_cudnn_on_gpu: bool | None = True,
    data_format: str | bytes | None = "NHWC",
    dilations: Sequence[int] | None = [1, 1, 1, 1],
    name: object = None,  # noqa: ARG001 - TensorFlow's, without effect there too
    filters: ArrayLike | None = None,
    *,
    device: str | None = None,
    algorithm: str = "auto",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Compute the gradient of a 2-D convolution with respect to its input.

    Also known as transposed convolution or deconvolution. Drop-in for
    ``tf.compat.v1.nn.conv2d_backprop_input``, also where TensorFlow's CPU build refuses: every
    dtype works in both layouts, with dilation, groups and explicit padding.

    Parameters
    ----------
    input_sizes : sequence of 4 or 2 ints
        Shape of the convolution's input, in `data_format` order: the shape of the result. Two
        ints are its (height, width); the rest then comes from the two arrays.
    filter : array of shape (filter_rows, filter_cols, in_channels / groups, out_channels)
        Weights: float16, bfloat16, float32, float64 or int32. Any memory layout; lists of floats
        are float32, lists of ints int32. The number of groups follows from `input_sizes`.
    out_backprop : array of shape (batch, out_rows, out_cols, out_channels)
        Gradient with respect to the convolution's output, of the filter's dtype, in
        `data_format` order. Numbers in lists take the filter's dtype.
    strides : list or tuple of 4 ints
        Strides in `data_format` order; 1 for batch and channels. Required, as is `padding`: that
        they show a default is TensorFlow's signature.
    padding : {'SAME', 'VALID'} or list of 4 pairs
        TensorFlow's padding rule (see Notes), or explicit [before, after] pairs in `data_format`
        order.
    use_cudnn_on_gpu : bool, default True
        Ignored; there is no cuDNN here.
    data_format : {'NHWC', 'NCHW'}, default 'NHWC'
        Order of the dimensions of `input_sizes`, `out_backprop`, `strides`, `dilations`,
        explicit `padding` and the result.
    dilations : list or tuple of 4 ints, default [1, 1, 1, 1]
        Distance between filter taps, in `data_format` order; 1 for batch and channels.
    name : object, optional
        Ignored; TensorFlow's name of the operation.
    filters : array, optional
        Another name of `filter`; one of the two must be given.
    device : {None, 'cpu', 'cuda', 'cuda:N'}, optional
        Where to compute; None means where the arrays are.
    algorithm : {'auto', 'direct', 'winograd'}, default 'auto'
        How to compute. 'winograd' takes down to a quarter of the products, with larger rounding
        errors; it needs float32 or float64, one group, strides s up to 16 that share no factor with
        the dilation, and s to 3 * s filter rows and columns. 'auto' uses it where it pays. The
        choice never depends on timing or on the batch: the same call gives the same bits.
    out : ndarray, optional
        Array to write the result into: its shape and dtype, and no memory shared with the other
        arrays.

    Returns
    -------
    ndarray of the shape that `input_sizes` means
        The gradient with respect to the input, of the filter's dtype; `out` if it was given.

    Raises
    ------
    ValueError
        If a shape, a size, a word or `out` does not fit, or 'winograd' is asked for where it
        cannot compute.
    TypeError
        If an argument has a wrong type, an unsupported dtype, or the dtypes differ.
    RuntimeError
        If the device is not available.
    MemoryError
        If the result cannot be allocated; the text says how many bytes it needs.

    See Also
    --------
    fractional_avg_pool_grad : The gradient of fractional average pooling.

    Notes
    -----
    With stride s, dilation d and p the padding before, for rows (y) and columns (x), and c and o
    channels of the same group,

        result[n, y, x, c] = sum of filter[k, m, c, o] * out_backprop[n, i, j, o]
        over k, m, i, j, o  with  y + p_y = i * s_y + k * d_y  and  x + p_x = j * s_x + m * d_x

    The output's size along an axis, and the padding before it, follow from the input's size h, the
    filter's size k and e = (k - 1) * d + 1, its reach:

    =========  =========================  ========================================
    padding    output size                padding before
    =========  =========================  ========================================
    'VALID'    (h - e + s) / s            0
    'SAME'     (h + s - 1) / s            max(0, (output - 1) * s + e - h) // 2
    [a, b]     (h + a + b - e + s) / s    a
    =========  =========================  ========================================

    where / cuts toward zero. `out_backprop` must have just these sizes.

    Sums of float16, bfloat16 and float32 are formed in float32 and rounded once, those of float64
    in float64; int32 wraps around. Elements that nothing reaches are 0. Only products that belong
    to a sum are formed: a NaN or infinity reaches just the elements that depend on it. Results
    are the same bits from run to run and for any number of threads. Subnormal numbers are not
    flushed to zero. The error over the largest exact value is within 3e-6 in float32 and 1e-14 in
    float64 for 'direct', and within 3e-5 and 1e-13 for 'winograd'.

    Beside the result, memory is needed for a reordered copy of the filter (with 'winograd' for up
    to six such copies, and at least 8 MiB), for a few MiB a thread, and, where tasks do not copy
    what they read of an NCHW or half gradient for themselves, for a copy of that of a few images.

    ==================================================  ====================================
    TensorFlow                                          here
    ==================================================  ====================================
    ``tf.compat.v1.nn.conv2d_backprop_input(...)``      the same, ``tf`` being this package
    ``tf.raw_ops.Conv2DBackpropInput(...)``             the same, ``tf`` being this package
    ``tf.nn.conv2d_transpose(x, f, shape, s, p)``       ``conv2d_backprop_input(shape, f, x,
                                                        [1, s, s, 1], p)``
    gradient of ``tf.nn.conv2d(x, f, s, p)``            ``conv2d_backprop_input(x.shape, f, g,
                                                        [1, s, s, 1], p)``
    ``InvalidArgumentError``, ``UnimplementedError``    ValueError, TypeError for dtypes
    ``ResourceExhaustedError``                          MemoryError
    ==================================================  ====================================

    References
    ----------
    .. [1] TensorFlow, conv2d_backprop_input,
       https://www.tensorflow.org/api_docs/python/tf/compat/v1/nn/conv2d_backprop_input

    Examples
    --------
    A stride of 2 places each gradient, times the filter, two pixels from the last:

    >>> import numpy as np
    >>> from numba_gradops import conv2d_backprop_input
    >>> weights = np.array([1.0, 10.0, 100.0], dtype=np.float32).reshape(1, 3, 1, 1)
    >>> gradient = np.array([1.0, 2.0], dtype=np.float32).reshape(1, 1, 2, 1)
    >>> conv2d_backprop_input([1, 1, 5, 1], weights, gradient, [1, 1, 2, 1], "VALID").ravel()
    array([  1.,  10., 102.,  20., 200.], dtype=float32)
    """
    with _arguments.READING:
        pads = _arguments.padding(padding)
    return compute(
        input_sizes,
        _one_filter(filter, filters),
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


def _one_filter(filter: ArrayLike | None, filters: ArrayLike | None) -> ArrayLike | None:
    if filter is not None and filters is not None:
        msg = "filter and filters are two names of one argument; got both"
        raise ValueError(msg)
    return filters if filter is None else filter


def compute(
    input_sizes: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: _arguments.Padding,
    use_cudnn_on_gpu: Any,
    data_format: Any,
    dilations: Any,
    device: Any,
    algorithm: Any,
    out: Any,
) -> NDArray[Any]:
    """Check every argument but the padding, then have the device compute."""
    backend = _device.backend(device, {"filter": filter, "out_backprop": out_backprop, "out": out})
    with _arguments.READING:
        _arguments.flag(use_cudnn_on_gpu, "use_cudnn_on_gpu", default=True)
        layout = _arguments.data_format(data_format)
        way = _arguments.algorithm(algorithm)
        sizes = _arguments.shape_vector(input_sizes, "input_sizes", (4, 2), _SIZES)
        steps = _arguments.four_integers(strides, "strides")
        spread = (
            (1, 1, 1, 1) if dilations is None else _arguments.four_integers(dilations, "dilations")
        )
        weights = backend.arrays.tensor(filter, "filter", _dtypes.CONV2D)
        gradient = backend.arrays.tensor(
            out_backprop, "out_backprop", _dtypes.CONV2D, like=weights.dtype
        )
        if weights.dtype != gradient.dtype:
            msg = (
                f"filter and out_backprop must have the same dtype, got {weights.dtype} and "
                f"{gradient.dtype} (numbers in a list given as filter are float32 or int32)"
            )
            raise TypeError(msg)
        geometry = _geometry.conv2d(
            sizes,
            weights.shape,
            gradient.shape,
            steps,
            spread,
            padding,
            layout,
        )
        shape = _geometry.input_shape(geometry, layout)
        inputs = {"filter": filter, "out_backprop": out_backprop, "input_sizes": input_sizes}
        result = backend.arrays.result(out, shape, weights.dtype, inputs)
    run = backend.conv2d_backprop_input
    given = run(geometry, weights, gradient, layout, way, result)
    answer: NDArray[Any] = result if given is None else given
    return answer
