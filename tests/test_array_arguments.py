"""Arrays of every kind go in, unchanged; results go where the caller wants them."""

import ml_dtypes
import numpy as np
import pytest
from accuracy import draw

from numba_gradops import conv2d_backprop_input, fractional_avg_pool_grad

SIZES, STRIDES = [2, 9, 7, 10], [1, 2, 1, 1]
POOL = {"row_pooling_sequence": [0, 2, 3, 5], "col_pooling_sequence": [0, 1, 4, 6, 7]}


def conv(weights, gradient, **extra):
    return conv2d_backprop_input(SIZES, weights, gradient, STRIDES, "SAME", **extra)


def pool(gradient, **extra):
    return fractional_avg_pool_grad([2, 5, 7, 3], gradient, **POOL, **extra)


def in_a_file(array, tmp_path):
    path = tmp_path / f"{array.size}.bin"
    array.tofile(path)
    return np.memmap(path, array.dtype, "r", shape=array.shape)


def unaligned(array):
    buffer = bytearray(array.nbytes + 1)
    view = np.frombuffer(buffer, array.dtype, offset=1, count=array.size).reshape(array.shape)
    view[...] = array
    assert not view.flags.aligned
    return view


def spaced(array):
    """Take every other element of a larger array, backwards along the last axis."""
    large = np.zeros([2 * n for n in array.shape], array.dtype)
    view = large[tuple(slice(None, None, 2) for _ in array.shape)][..., ::-1]
    view[...] = array
    return view


KINDS = {
    "fortran order": lambda a, _: np.asfortranarray(a),
    "every other element, reversed": lambda a, _: spaced(a),
    "transposed view": lambda a, _: np.ascontiguousarray(a.transpose(3, 1, 0, 2)).transpose(
        2, 1, 3, 0
    ),
    "read-only": lambda a, _: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "big-endian": lambda a, _: a.astype(a.dtype.newbyteorder(">")),
    "little-endian": lambda a, _: a.astype(a.dtype.newbyteorder("<")),
    "unaligned": lambda a, _: unaligned(a),
    "memory-mapped": in_a_file,
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_gives_the_same_bits_and_is_left_unchanged(rng, kind, dtype, tmp_path):
    weights, gradient = draw(rng, (3, 2, 10, 4), dtype), draw(rng, (2, 5, 7, 4), dtype)
    expected = conv(weights, gradient)
    for odd_weights, odd_gradient in (
        (KINDS[kind](weights, tmp_path), gradient),
        (weights, KINDS[kind](gradient, tmp_path)),
    ):
        before = odd_weights.tobytes(), odd_gradient.tobytes()
        result = conv(odd_weights, odd_gradient)
        assert result.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(result, expected)
        assert before == (odd_weights.tobytes(), odd_gradient.tobytes())
    pooled = draw(rng, (2, 3, 4, 3), dtype)
    odd = KINDS[kind](pooled, tmp_path)
    before = odd.tobytes()
    np.testing.assert_array_equal(pool(odd), pool(pooled))
    assert odd.tobytes() == before


@pytest.mark.parametrize(
    "value",
    [
        [[[[np.ma.array(1.0, mask=True)]]]],
        [np.ma.ones((1, 1, 1))],
        [[[[True], [2.5]]]],
        [[[[np.bool_(True)]]]],
    ],
    ids=["masked number", "masked array", "bool", "np.bool_"],
)
def test_lists_with_what_would_be_lost_are_refused(value):
    with pytest.raises(TypeError, match=r"out_backprop must (not hold masked|hold numbers)"):
        fractional_avg_pool_grad([1, 1, 1, 1], value, [0, 1], [0, 1])


def test_halves_and_floats_are_not_mixed_through_a_list():
    wide = [np.full((1, 1, 1), 1e9)]
    with pytest.raises(TypeError, match="same dtype, got float16 and float64"):
        conv2d_backprop_input([1, 1, 1, 1], np.ones((1, 1, 1, 1), "f2"), wide, [1] * 4, "SAME")


def test_numpys_error_settings_do_not_matter(rng):
    weights, gradient = draw(rng, (3, 2, 10, 4), "f2"), draw(rng, (2, 5, 7, 4), "f2") * 1e-7
    with np.errstate(all="raise"):
        conv(weights, gradient.astype("f2"))
        conv2d_backprop_input([1, 1, 1, 1], [[[[1e-50]]]], [[[[1e300]]]], [1, 1, 1, 1], "SAME")


def test_broadcast_arrays_are_read_as_they_look(rng):
    weights = np.broadcast_to(np.float32(2), (3, 2, 10, 4))
    gradient = np.broadcast_to(rng.standard_normal(4).astype(np.float32), (2, 5, 7, 4))
    np.testing.assert_array_equal(conv(weights, gradient), conv(weights.copy(), gradient.copy()))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([[[[1.0], [2.0]]]], np.float32),
        ([[[[1], [2]]]], np.int32),
        ([[[[1], [2.5]]]], np.float32),
        ([[[[1], [2**40]]]], np.int64),
        ((((np.float64(1),), (np.float64(2),)),), None),
        ([[[[np.float64(1)], [np.float64(2)]]]], np.float64),
        ([[[[np.float16(1)], [np.float16(2)]]]], np.float16),
        ([np.ones((1, 2, 1))], np.float64),
        ([[[[np.int64(1)], [np.int64(2)]]]], np.int32),
        ([[[[2**31 - 1], [-(2**31)]]]], np.int32),
        ([[[[2**31], [0]]]], np.int64),
        ([[[[-(2**31) - 1], [0]]]], np.int64),
    ],
)
def test_lists_get_the_dtype_that_tensorflow_gives_them(value, dtype):
    if dtype is None:
        with pytest.raises(ValueError, match="out_backprop must have 4 dimensions"):
            fractional_avg_pool_grad([1, 1, 4, 1], value, [0, 1], [0, 2, 4])
        return
    result = fractional_avg_pool_grad([1, 1, 4, 1], value, [0, 1], [0, 2, 4])
    assert result.dtype == dtype
    expected = np.asarray(value, dtype).repeat(2, axis=2) / 2
    np.testing.assert_array_equal(result, expected.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("numbers", [[[[[3]]]], [[[[3.0]]]]])
def test_a_list_of_gradients_takes_the_filters_dtype(dtype, numbers):
    weights = np.full((1, 1, 1, 1), 2, dtype)
    result = conv2d_backprop_input([1, 1, 1, 1], weights, numbers, [1, 1, 1, 1], "SAME")
    assert result.dtype == dtype
    assert result == 6


def test_a_number_that_can_be_cut_into_no_dtype_is_refused():
    with pytest.raises(ValueError, match="filter has an integer that does not fit in int32"):
        conv2d_backprop_input([1, 1, 1, 1], [[[[2**31]]]], [[[[1]]]], [1, 1, 1, 1], "SAME")
    with pytest.raises(ValueError, match="out_backprop has an integer that does not fit"):
        fractional_avg_pool_grad([1, 1, 2, 1], [[[[0], [2**63]]]], [0, 1], [0, 1, 2])
    with pytest.raises(ValueError, match="filter has an integer that does not fit in int32"):
        conv2d_backprop_input([1, 1, 1, 1], [[[[-(2**31) - 1]]]], [[[[1]]]], [1, 1, 1, 1], "SAME")
    with pytest.raises(TypeError, match="out_backprop must have dtype int32 like filter"):
        conv2d_backprop_input([1, 1, 1, 1], [[[[1]]]], [[[[1.5]]]], [1, 1, 1, 1], "SAME")


class TestOut:
    @pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int32])
    @pytest.mark.parametrize(
        "arrange",
        [np.asarray, np.asfortranarray, spaced, unaligned],
        ids=["contiguous", "fortran", "spaced", "unaligned"],
    )
    def test_is_filled_in_place_whatever_its_layout(self, rng, arrange, dtype):
        weights, gradient = draw(rng, (3, 2, 10, 4), dtype), draw(rng, (2, 5, 7, 4), dtype)
        out = arrange(np.full(SIZES, 77, dtype))
        assert conv(weights, gradient, out=out) is out
        np.testing.assert_array_equal(out, conv(weights, gradient))
        pooled = draw(rng, (2, 3, 4, 3), dtype)
        out = arrange(np.full((2, 5, 7, 3), 77, dtype))
        assert pool(pooled, out=out) is out
        np.testing.assert_array_equal(out, pool(pooled))

    def test_is_zeroed_where_nothing_reaches(self):
        out = np.full((1, 4, 4, 1), 7, np.float32)
        empty = np.ones((1, 4, 4, 0), np.float32)
        conv2d_backprop_input(
            out.shape, np.ones((3, 3, 1, 0), np.float32), empty, [1, 1, 1, 1], "SAME", out=out
        )
        assert not out.any()

    def test_elements_beside_a_view_are_not_touched(self, rng):
        weights = draw(rng, (3, 2, 10, 4), np.float32)
        gradient = draw(rng, (2, 5, 7, 4), np.float32)
        large = np.full((2, 9, 7, 20), 77, np.float32)
        conv(weights, gradient, out=large[..., ::2])
        assert (large[..., 1::2] == 77).all()

    def test_may_lie_between_the_elements_of_an_input(self, rng):
        both = np.zeros((2, 5, 7, 6), np.float32)
        gradient, out = both[:, :3, :4, ::2], both[..., 1::2]
        gradient[...] = draw(rng, gradient.shape, np.float32)
        copy = gradient.copy()
        pool(gradient, out=out)
        np.testing.assert_array_equal(gradient, copy)
        np.testing.assert_array_equal(out, pool(copy))

    @pytest.mark.parametrize(
        ("out", "error", "text"),
        [
            ([[1.0]], TypeError, "out must be a NumPy array, got list"),
            (np.ma.zeros((2, 5, 7, 3), np.float32), TypeError, "out must be a NumPy array"),
            (np.zeros((2, 5, 7, 3)), TypeError, "out must have dtype float32, got float64"),
            (np.zeros((2, 5, 7, 3), ">f4"), TypeError, "out must have dtype float32, got >f4"),
            (np.zeros((2, 5, 7, 4), np.float32), ValueError, r"out must have shape \(2, 5, 7, 3\)"),
            (np.zeros(210, np.float32), ValueError, r"out must have shape .*, got \(210,\)"),
            (
                np.frombuffer(bytes(840), np.float32).reshape(2, 5, 7, 3),
                ValueError,
                "out must be writeable",
            ),
            (
                np.lib.stride_tricks.as_strided(
                    np.zeros(105, np.float32), (2, 5, 7, 3), (0, 84, 12, 4)
                ),
                ValueError,
                "out must have memory of its own for every element",
            ),
            (
                np.lib.stride_tricks.as_strided(
                    np.zeros(400, np.float32), (2, 5, 7, 3), (800, 84, 8, 4)
                ),
                ValueError,
                "out must have memory of its own for every element",
            ),
        ],
    )
    def test_is_refused_if_it_cannot_take_the_result(self, rng, out, error, text):
        gradient = draw(rng, (2, 3, 4, 3), np.float32)
        with pytest.raises(error, match=text):
            pool(gradient, out=out)

    def test_must_not_share_memory_with_an_input_that_is_copied(self):
        memory = np.zeros(210, np.float32)
        swapped = memory.view(">f4")[:72].reshape(2, 3, 4, 3)
        with pytest.raises(ValueError, match="out must not share memory with out_backprop"):
            pool(swapped, out=memory.reshape(2, 5, 7, 3))
        numbers = np.ones(4, np.int32)
        out = numbers[:1].reshape(1, 1, 1, 1)
        with pytest.raises(ValueError, match="out must not share memory with input_sizes"):
            conv2d_backprop_input(
                numbers,
                [[[[2]]]],
                [[[[3]]]],
                [1, 1, 1, 1],
                "SAME",
                out=out,
            )

    def test_counts_as_shared_where_it_is_too_hard_to_tell(self, monkeypatch):
        def too_hard(*_, **__):
            raise np.exceptions.TooHardError

        both = np.zeros((2, 5, 7, 6), np.float32)
        monkeypatch.setattr(np, "shares_memory", too_hard)
        with pytest.raises(ValueError, match="out must not share memory with out_backprop"):
            pool(both[:, :3, :4, ::2], out=both[..., 1::2])

    def test_must_not_share_memory_with_an_input(self, rng):
        memory = draw(rng, (2 * 9 * 7 * 10,), np.float32)
        out = memory.reshape(SIZES)
        weights, gradient = memory[:240].reshape(3, 2, 10, 4), draw(rng, (2, 5, 7, 4), np.float32)
        with pytest.raises(ValueError, match="out must not share memory with filter"):
            conv(weights, gradient, out=out)
        with pytest.raises(ValueError, match="out must not share memory with out_backprop"):
            conv(weights.copy(), memory[-280:].reshape(2, 5, 7, 4), out=out)
        same = memory[:72].reshape(2, 3, 4, 3)
        with pytest.raises(ValueError, match="out must not share memory with out_backprop"):
            pool(same, out=memory[:210].reshape(2, 5, 7, 3))
