"""Bad calls raise ValueError or TypeError with a message that helps; none may crash Python."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

import golden
import numpy as np
import pytest
from numpy.typing import NDArray

import numba_gradops
from numba_gradops import _reference

CALLS = golden.invalid_calls()
# TensorFlow pools no float16; this package does, as an extension that changes no other result.
EXTENSION = "bad_fap_grad_float16"
REFUSED = [call for call in CALLS if call["id"] != EXTENSION]

# The third word of an id in invalid.json names the argument at fault.
AT_FAULT = {
    "fractional_avg_pool_grad": {
        "shape": "orig_input_tensor_shape",
        "grad": "out_backprop",
        "rows": "row_pooling_sequence",
        "cols": "col_pooling_sequence",
        "overlapping": "overlapping",
    },
    "conv2d_backprop_input": {
        "filter": "filter",
        "grad": "out_backprop",
        "strides": "strides",
        "padding": "padding",
        "format": "data_format",
        "dilations": "dilations",
        "sizes": "input_sizes",
    },
}


def test_every_invalid_call_is_there() -> None:
    assert len({call["id"] for call in CALLS}) == len(CALLS) == 65
    assert len(REFUSED) == 64


@pytest.mark.parametrize("call", REFUSED, ids=[call["id"] for call in REFUSED])
def test_invalid_call_names_the_argument_and_what_it_must_be(call: dict[str, Any]) -> None:
    op = getattr(numba_gradops, call["op"])
    expected = tuple(golden.EXCEPTIONS[name] for name in call["expect"])
    with pytest.raises(expected) as caught:
        op(**golden.build(call["args"]))
    arguments = list(inspect.signature(op).parameters)
    assert_helpful(str(caught.value), arguments)
    at_fault = AT_FAULT[call["op"]].get(call["id"].split("_")[2])
    # Where padding is what does not fit, the gradient's size is the other half of the quarrel.
    if at_fault and call["id"] != "bad_conv_padding_wrong_size":
        assert re.search(rf"\b{at_fault}s?\b", str(caught.value))


def test_pooling_takes_float16_though_tensorflow_does_not() -> None:
    (call,) = (call for call in CALLS if call["id"] == EXTENSION)
    assert call["expect"][0] == "TypeError"
    arguments = golden.build(call["args"])
    result = numba_gradops.fractional_avg_pool_grad(**arguments)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, _reference.fractional_avg_pool_grad(**arguments))


def assert_helpful(message: str, arguments: list[str]) -> None:
    assert any(re.search(rf"\b{name}\b", message) for name in arguments), message
    assert re.search(r"\b(must|expected|needs|got|given|not both)\b", message), message


class Advisory(NamedTuple):
    """An input of a published advisory or report; expect is 'zeros', 'reference' or 'refused'."""

    id: str
    op: str
    args: dict[str, Any]
    expect: str = "refused"


def zeros(*shape: int, dtype: str = "float32") -> NDArray[Any]:
    return np.zeros(shape, dtype)


def counted(*shape: int, dtype: str = "float32") -> NDArray[Any]:
    return golden.array(dtype, list(shape), "arange")


def pool(
    id: str, shape: Any, gradient: Any, rows: Any, cols: Any, overlapping: bool = True
) -> Advisory:
    args = {"orig_input_tensor_shape": shape, "out_backprop": gradient, "overlapping": overlapping}
    args |= {"row_pooling_sequence": rows, "col_pooling_sequence": cols}
    return Advisory(id, "fractional_avg_pool_grad", args)


def conv(
    id: str,
    sizes: Any,
    filter: Any,
    gradient: Any,
    strides: Any = (1, 1, 1, 1),
    padding: Any = "SAME",
    dilations: Any = (1, 1, 1, 1),
    expect: str = "refused",
) -> Advisory:
    args = {"input_sizes": sizes, "filter": filter, "out_backprop": gradient, "strides": strides}
    args |= {"padding": padding, "dilations": dilations}
    return Advisory(id, "conv2d_backprop_input", args, expect)


HUGE = 1879048192
CVE_2021_37651 = (np.full((1, 2, 2, 1), 541), [0, 0, 0, 0, 0], [-2, 0, 0, 2, 0])
SCALAR = np.float32(0)
# Each line is a way memory was once read, written or divided wrongly. The second of two lines
# with one id removes whatever else is wrong with the advisory's input, so that the check the
# advisory calls for is the one that is met.
ADVISORIES = [
    pool("CVE-2021-29578", [1, 3, 2, 3], counted(1, 1, 1, 1, dtype="int64"), [0], [0]),
    pool("CVE-2021-29578", [1, 3, 2, 1], counted(1, 1, 1, 1, dtype="int64"), [0], [0]),
    pool("CVE-2021-37651", [0, 1, 2, 3], *CVE_2021_37651),
    pool("CVE-2021-37651", [1, 1, 2, 1], *CVE_2021_37651),
    pool("CVE-2022-21730", [2, 2, 2, 2], counted(1, 2, 3, 2), [-10, 1, 2, 3], [1, 2, 3, 4]),
    pool("CVE-2022-21730", [1, 2, 2, 2], counted(1, 2, 3, 2), [-10, 1, 2, 3], [1, 2, 3, 4]),
    pool("CVE-2022-21730", [1, 2, 2, 2], counted(1, 2, 3, 2), [0, 1, 2, 3], [1, 2, -3, 4]),
    pool("CVE-2022-35963", [-HUGE] * 4, zeros(0, 0, 0, 0, dtype="float64"), [1] * 4, [1] * 4),
    pool("CVE-2022-35963", [HUGE] * 4, counted(1, 1, 1, 1, dtype="float64"), [1] * 4, [1] * 4),
    pool("tensorflow#107123", [1, 3, 3, 1], counted(4, 1, 1, 1), [1, 2, 3], [1, 2, 3], False),
    pool("tensorflow#107123", [1, 3, 3, 1], counted(1, 1, 1, 4), [1, 2, 3], [1, 2, 3], False),
    conv("CVE-2021-29525", [52, 1, 1, 5], zeros(0, 1, 5, 0), zeros(52, 1, 1, 0), expect="zeros"),
    conv("CVE-2022-35969", [65534, 65534], zeros(3, 3, 2, 2), SCALAR),
    conv(
        "CVE-2022-35999",
        [3, 1, 1, 2],
        counted(1, 3, 2, 3),
        zeros(3, 1, 0, 3),
        (1, 1, 2, 1),
        "VALID",
        expect="zeros",
    ),
    conv("tensorflow#62950", [1, 4, 4, 2], zeros(3, 3, 2, 3), zeros(1, 4, 4, 3), (1, 1, 1)),
    conv("tensorflow#125511", [4, 4, 2], zeros(3, 3, 2, 3), zeros(1, 4, 4, 3)),
    conv("tensorflow#57715", np.int32(4), zeros(3, 3, 2, 3), zeros(1, 4, 4, 3)),
    conv("tensorflow#127293", [1, -4, 4, 2], zeros(3, 3, 2, 3), zeros(1, 4, 4, 3)),
    conv("tensorflow#125506", [4, 4], SCALAR, zeros(1, 4, 4, 3)),
    conv("tensorflow#125946", [4, 4], zeros(3), zeros(1, 4, 4, 3)),
    conv(
        "tensorflow#57958",
        [114078056, 179835296],
        zeros(1, 1, 1, 1),
        zeros(2, 2, 2, 2),
        (1, 10, 10, 1),
    ),
    conv(
        "tensorflow#57958",
        [114078056, 179835296],
        zeros(1, 1, 1, 1),
        zeros(2, 2, 2, 1),
        (1, 10, 10, 1),
    ),
    # Strides and dilations near 2**31 are legal and crash oneDNN.
    *(
        conv(
            f"stride-{name}",
            [1, 4, 4, 2],
            counted(3, 3, 2, 3),
            counted(1, 1, 1, 3),
            (1, stride, stride, 1),
            expect="reference",
        )
        for name, stride in (("2^30", 2**30), ("2^31-1", 2**31 - 1))
    ),
    conv(
        "dilation-2^31-1",
        [1, 4, 4, 2],
        counted(3, 3, 2, 3),
        counted(1, 4, 4, 3),
        dilations=(1, 2**31 - 1, 2**31 - 1, 1),
        expect="reference",
    ),
    # Found in the sister ops, carried over to this one.
    conv("CVE-2021-29524", [0, 0, 1, 0], zeros(1, 1, 0, 1), zeros(0, 0, 1, 1), (1, 66, 18, 1)),
    conv("CVE-2021-29538", [0] * 4, zeros(0, 0, 0, 0), zeros(0, 0, 0, 0)),
    conv("CVE-2021-29540", [1, 1, 1, 2], counted(1, 1, 1, 1), counted(1, 1, 1, 1)),
    conv(
        "CVE-2021-29520",
        [1, 1, 1, 2],
        counted(4, 6, 1, 1),
        counted(1, 1, 1, 1),
        (1, 29, 89, 1),
    ),
    conv("CVE-2021-29522", [0] * 4, zeros(1, 1, 0, 1), zeros(0, 0, 0, 1)),
    conv("CVE-2022-29196", np.array(4), counted(3, 3, 2, 3), counted(1, 4, 4, 3)),
    conv("CVE-2021-41197", [HUGE] * 13, counted(1, 1, 1, 1), counted(1, 1, 1, 1)),
    conv("CVE-2021-41197", [HUGE] * 4, counted(1, 1, 1, 1), counted(1, 1, 1, 1)),
    conv("CVE-2023-25661", [1, 0, 4, 2], counted(3, 3, 2, 3), zeros(1, 0, 4, 3), expect="zeros"),
    *(
        conv(
            cve, [1, 4, 4, 2], zeros(0, 3, 2, 3), zeros(1, 5, 2, 3), padding="VALID", expect="zeros"
        )
        for cve in ("CVE-2021-37675", "CVE-2021-41209")
    ),
    conv("CVE-2021-29526", [1, 3, 3, 2], zeros(3, 3, 2, 0), zeros(1, 3, 3, 0), expect="zeros"),
    conv("CVE-2022-35996", [0, 4, 4, 2], counted(3, 3, 2, 3), zeros(0, 4, 4, 3), expect="zeros"),
    *(
        conv(cve, [1, 4, 4, 2], zeros(3, 3, 2, 3), zeros(1, 4, 4, 3), (1, rows, cols, 1))
        for cve, rows, cols in (
            ("CVE-2022-21725", 0, 0),
            ("CVE-2021-29588", 1, 0),
            ("CVE-2021-29585", 0, 1),
        )
    ),
    pool("CVE-2021-29550", [1, 1, 4, 1], zeros(1, 0, 2, 1), [0], [0, 2, 4]),
    pool("CVE-2022-21735", [1, 1, 1, 4], zeros(1, 1, 0, 4), [0, 1], [0]),
    pool("CVE-2023-25801", [3, 30, 50, 3], zeros(1, 10, 50, 3), range(0, 31, 3), range(51)),
    pool("CVE-2021-29580", [1, 4, 4, 1], zeros(0, 0, 0, 0), [], []),
    pool("CVE-2021-29580", [1, 4, 4, 1], zeros(2, 2, 1), [0, 2, 4], [0, 2, 4]),
    pool("CVE-2022-35981", [1, 4, 4, 1], zeros(1, 2, 2, 1), [0] * 3, [0] * 3, False),
    pool("CVE-2022-41897", [1, 4, 4, 1], zeros(1, 2, 2, 1), [-0x4000000, 1, 1], [0, 2, 4]),
    pool("CVE-2022-41897", [1, 4, 4, 1], zeros(1, 2, 2, 1), [-(2**63), 1, 1], [0, 2, 4]),
]
IDS = [f"{number}-{advisory.id}-{advisory.expect}" for number, advisory in enumerate(ADVISORIES)]


@pytest.mark.parametrize("advisory", ADVISORIES, ids=IDS)
def test_input_of_a_security_advisory_is_refused_or_right(advisory: Advisory) -> None:
    op = getattr(numba_gradops, advisory.op)
    if advisory.expect == "refused":
        with pytest.raises(ValueError, match=r"\w") as caught:
            op(**advisory.args)
        assert_helpful(str(caught.value), list(inspect.signature(op).parameters))
        return
    result = op(**advisory.args)
    if advisory.expect == "zeros":
        np.testing.assert_array_equal(
            result, np.zeros(advisory.args["input_sizes"], np.float32), strict=True
        )
    else:
        np.testing.assert_allclose(result, getattr(_reference, advisory.op)(**advisory.args))
