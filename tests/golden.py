"""Read tests/data: golden results, refused calls, TensorFlow's own tests, bug reports."""

from __future__ import annotations

import importlib
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).parent / "data"
EXCEPTIONS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ValueError, TypeError, OverflowError, MemoryError)
}


class Case(NamedTuple):
    """A legal call and the result TensorFlow gave, or would give if it took the call."""

    id: str
    op: str
    dtype: str
    args: dict[str, Any]
    compare: dict[str, Any]

    @property
    def needs_ml_dtypes(self) -> bool:
        return self.dtype == "bfloat16"

    @property
    def explicit_padding(self) -> bool:
        return not isinstance(self.args.get("padding", ""), str)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the call, arrays included."""
        arrays = ["filter", "out_backprop"] if "padding" in self.args else ["out_backprop"]
        return self.args | {name: self._array(name) for name in arrays}

    def expected(self) -> NDArray[Any]:
        return self._array("expected")

    def check(self, result: NDArray[Any]) -> None:
        """Compare as the case asks; the shape and the dtype must be right in any case."""
        expected = self.expected()
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        if self.compare["mode"] == "exact":
            np.testing.assert_array_equal(exactly(result), exactly(expected))
        else:
            tolerance = {name: self.compare[name] for name in ("rtol", "atol")}
            np.testing.assert_allclose(exactly(result), exactly(expected), **tolerance)

    def _array(self, name: str) -> NDArray[Any]:
        stored = _stored(self.op)[f"{self.id}/{name}"]
        return stored.view(dtype_named("bfloat16")) if self.needs_ml_dtypes else stored


def cases() -> list[Case]:
    records = _read("index.json")["cases"]
    return [Case(**{name: record[name] for name in Case._fields}) for record in records]


def invalid_calls() -> list[dict[str, Any]]:
    return list(_read("invalid.json")["calls"])


def tensorflow_tests() -> list[dict[str, Any]]:
    return list(_read("tf_tests.json")["entries"])


def bug_reports() -> list[dict[str, Any]]:
    return list(_read("reports.json")["reports"])


def build(value: Any) -> Any:
    """Turn the JSON form of an argument, or of all of them, into the argument itself."""
    if isinstance(value, dict):
        if value.keys() == {"array"}:
            return array(**value["array"])
        return {name: build(part) for name, part in value.items()}
    return value


def array(
    dtype: str,
    shape: list[int] | None = None,
    fill: str | float = "values",
    *,
    values: Any = None,
    start: int = 1,
    seed: int | None = None,
    low: float = 0,
    high: float = 1,
) -> NDArray[Any]:
    """Make an array from its description."""
    if shape is None:
        return np.array(values).astype(dtype_named(dtype))
    made: NDArray[Any]
    if fill == "values":
        made = np.array(values).reshape(shape)
    elif fill == "arange":
        made = np.arange(start, start + np.prod(shape, dtype=int)).reshape(shape)
    elif fill == "normal":
        made = np.random.default_rng(seed).standard_normal(shape)
    elif fill == "uniform":
        made = np.random.default_rng(seed).uniform(low, high, shape)
    else:
        made = np.full(shape, {"zeros": 0, "ones": 1}.get(str(fill), fill))
    return made.astype(dtype_named(dtype))


def dtype_named(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        bfloat16: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return bfloat16
    return np.dtype(name)


def exactly(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a dtype NumPy compares well; float64 holds every shorter float."""
    return values if values.dtype.kind in "iu" else values.astype(np.float64)


@cache
def _read(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


@cache
def _stored(op: str) -> dict[str, NDArray[Any]]:
    with np.load(DATA / f"{op}.npz") as arrays:
        return dict(arrays)
