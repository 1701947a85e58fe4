"""The digits example learns, draws its picture, and its gradients are the slopes of its loss."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the digits example needs scikit-learn")
pytest.importorskip("tqdm", reason="the digits example needs tqdm")
image = pytest.importorskip("matplotlib.image", reason="the digits example needs matplotlib")

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train_digits.py"


def load_example() -> ModuleType:
    """Import the example from its file: examples/ is not a package."""
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """Load the example once for all tests."""
    return load_example()


def test_short_training_learns_and_draws(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four epochs read most held-out digits, report in one line and leave a real picture."""
    picture = tmp_path / "digits.png"
    accuracy = example.main(["--epochs", "4", "--seed", "0", "--out", str(picture)])
    printed = capsys.readouterr()

    assert 0.85 < accuracy <= 1  # chance is 0.1
    assert len(printed.out.splitlines()) == 1
    assert f"{accuracy:.1%}" in printed.out
    assert "loss=" in printed.err  # the progress bar

    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = image.imread(picture)
    assert min(pixels.shape[:2]) >= 400
    assert len(np.unique(pixels[..., 0])) > 20  # a blank page has one


def test_same_seed_same_network(example: ModuleType) -> None:
    """The seed alone decides the training."""
    images = np.random.default_rng(1).random((64, 8, 8, 1), dtype=np.float32)
    labels = np.arange(64) % 10
    first, losses = example.train(images, labels, 1, np.random.default_rng(2))
    again, losses_again = example.train(images, labels, 1, np.random.default_rng(2))
    assert losses == losses_again
    for name, value in first.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, again[name])


@pytest.mark.parametrize("length", [5, 8, 9, 14, 28])
def test_pooling_sequence_steps(example: ModuleType, length: int) -> None:
    """Sequences run from 0 to the length in steps of K or K + 1, in more than one order."""
    rng = np.random.default_rng(3)
    drawn = [example.draw_pooling_sequence(length, rng) for _ in range(40)]
    for sequence in drawn:
        assert sequence[0] == 0
        assert sequence[-1] == length
        step = length // (len(sequence) - 1)
        assert set(np.diff(sequence)) <= {step, step + 1}
    assert len({tuple(sequence) for sequence in drawn}) > 1


def test_gradients_are_the_slopes_of_the_loss(example: ModuleType) -> None:
    """Check the backward pass against central differences of the forward pass, in float64."""
    rng = np.random.default_rng(4)
    params = example.init_params(rng, np.float64)
    images = rng.random((2, 8, 8, 1))
    labels = np.array([3, 8])

    def forward() -> Any:
        return example.forward(params, images, np.random.default_rng(5))  # same pooling each time

    def slope(values: np.ndarray, place: tuple[int, ...], step: float = 1e-6) -> float:
        # A step this small moves no ReLU across its kink, where the slope would jump.
        kept = values[place]
        losses = []
        for moved in (kept + step, kept - step):
            values[place] = moved
            losses.append(example.cross_entropy(forward()[0], labels)[0])
        values[place] = kept
        return float(losses[0] - losses[1]) / (2 * step)

    scores, trace = forward()
    assert tuple(trace.rows) != tuple(trace.cols)  # or swapping them would go unseen
    _, score_grad = example.cross_entropy(scores, labels)
    grads, image_grad = example.backward(params, trace, score_grad)

    slopes = np.array([slope(images, place) for place in np.ndindex(images.shape)])
    np.testing.assert_allclose(image_grad.ravel(), slopes, rtol=1e-5, atol=1e-8)
    assert np.abs(slopes).max() > 0.01  # the check compares something

    assert grads.keys() == params.keys()
    for name, values in params.items():
        assert grads[name].shape == values.shape
        for _ in range(8):
            place = tuple(int(rng.integers(size)) for size in values.shape)
            expected = slope(values, place)
            np.testing.assert_allclose(grads[name][place], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("module", ["sklearn.datasets", "matplotlib.figure", "tqdm"])
def test_missing_extra_is_one_sentence(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of its extra packages the example says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=r"pip install 'numba-gradops\[examples\]'"):
        load_example()


def test_no_epochs_is_refused(example: ModuleType) -> None:
    """Training for zero epochs is an argument error, not a crash."""
    with pytest.raises(SystemExit):
        example.main(["--epochs", "0"])
