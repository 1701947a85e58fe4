"""Train a small convolutional network on real handwritten digits, in plain NumPy.

The network, for 8x8 gray images in ten classes:

    convolution 3x3, 1 -> 16 channels, ReLU
    fractional average pooling, 8x8 -> 5x5
    convolution 3x3, 16 -> 32 channels, ReLU
    convolution 5x5, 32 -> 10 channels: one score per class

The forward pass is written out below. The backward pass gets every gradient with respect to a
layer's input from the two functions of numba_gradops: ``conv2d_backprop_input`` for the
convolutions and ``fractional_avg_pool_grad`` for the pooling between them.

Fractional pooling shrinks by a factor that is not a whole number, here 8 / 5, with cells one or
two pixels wide. Which are which is drawn anew at every step, so the network never sees quite the
same digit twice. Prediction averages over several draws.

Run it (well under a minute; the first run also compiles):

    pip install 'numba-gradops[examples]'
    python examples/train_digits.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from numba_gradops import conv2d_backprop_input, fractional_avg_pool_grad

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from tqdm import tqdm
except ModuleNotFoundError as missing:
    advice = f"This example also needs {missing.name}: pip install 'numba-gradops[examples]'"
    raise SystemExit(advice) from missing

Array: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.int64]
Params: TypeAlias = dict[str, Array]

POOL_RATIO = 1.4  # 8 rows become floor(8 / 1.4) = 5
BATCH = 64
LEARNING_RATE = 0.1
MOMENTUM = 0.9
VOTES = 16  # pooling draws averaged for a prediction


def conv2d(images: Array, filters: Array, padding: str) -> tuple[Array, Array]:
    """Convolve NHWC images with HWIO filters; also return the patches the filters saw."""
    height, width, depth, out_depth = filters.shape
    if padding == "SAME":  # odd filters and stride 1: the same border on both sides
        border = [(0, 0), (height // 2, height // 2), (width // 2, width // 2), (0, 0)]
        images = np.pad(images, border)
    windows = np.lib.stride_tricks.sliding_window_view(images, (height, width), axis=(1, 2))
    # Window axes come out as (channel, row, column); filters want (row, column, channel).
    patches = windows.transpose(0, 1, 2, 4, 5, 3)
    patches = patches.reshape(*patches.shape[:3], height * width * depth)
    return patches @ filters.reshape(-1, out_depth), patches


def draw_pooling_sequence(length: int, rng: np.random.Generator) -> Ints:
    """Cut 0..length into cells of K or K + 1 pixels, in random order, where K = length // cells."""
    cells = int(length / POOL_RATIO)
    step, longer = divmod(length, cells)
    steps = np.full(cells, step)
    steps[:longer] += 1  # just enough longer cells to end exactly at `length`
    return np.concatenate([[0], np.cumsum(rng.permutation(steps))])


def fractional_avg_pool(images: Array, rows: Ints, cols: Ints) -> Array:
    """Average each cell: rows[r] up to rows[r + 1], cols[c] up to cols[c + 1]."""
    batch, _, _, depth = images.shape
    pooled = np.empty((batch, len(rows) - 1, len(cols) - 1, depth), images.dtype)
    for r in range(len(rows) - 1):
        for c in range(len(cols) - 1):
            cell = images[:, rows[r] : rows[r + 1], cols[c] : cols[c + 1]]
            pooled[:, r, c] = cell.mean(axis=(1, 2))
    return pooled


class Trace(NamedTuple):
    """What the backward pass needs to remember from the forward pass."""

    images: Array
    patches: tuple[Array, Array, Array]  # what each convolution's filters saw
    hidden: tuple[Array, Array]  # what each ReLU let through
    pooled: Array
    rows: Ints
    cols: Ints


def init_params(rng: np.random.Generator, dtype: type[np.floating[Any]] = np.float32) -> Params:
    """Draw filters whose spread keeps the signal's size from layer to layer (He et al.)."""
    params: Params = {}
    for layer, shape in enumerate([(3, 3, 1, 16), (3, 3, 16, 32), (5, 5, 32, 10)], start=1):
        spread = np.sqrt(2 / np.prod(shape[:3]))
        params[f"filter{layer}"] = rng.normal(0, spread, shape).astype(dtype)
        params[f"bias{layer}"] = np.zeros(shape[3], dtype)
    return params


def forward(params: Params, images: Array, rng: np.random.Generator) -> tuple[Array, Trace]:
    """Score each image for each class, pooling with freshly drawn sequences."""
    rows = draw_pooling_sequence(images.shape[1], rng)
    cols = draw_pooling_sequence(images.shape[2], rng)

    out, patches1 = conv2d(images, params["filter1"], "SAME")
    hidden1 = np.maximum(out + params["bias1"], 0)
    pooled = fractional_avg_pool(hidden1, rows, cols)
    out, patches2 = conv2d(pooled, params["filter2"], "SAME")
    hidden2 = np.maximum(out + params["bias2"], 0)
    out, patches3 = conv2d(hidden2, params["filter3"], "VALID")
    scores = (out + params["bias3"])[:, 0, 0]  # the 5x5 filter leaves a single pixel

    patches = (patches1, patches2, patches3)
    return scores, Trace(images, patches, (hidden1, hidden2), pooled, rows, cols)


def backward(params: Params, trace: Trace, score_grad: Array) -> tuple[Params, Array]:
    """Return the loss gradients of the parameters and of the images, given those of the scores."""
    grads: Params = {}
    hidden1, hidden2 = trace.hidden

    def through_conv(layer: int, inputs: Array, grad: Array, padding: str) -> Array:
        """Note the layer's own gradients, and pass the gradient on to its inputs."""
        filters = params[f"filter{layer}"]
        patches = trace.patches[layer - 1]
        by_patch = patches.reshape(-1, patches.shape[-1])
        by_pixel = grad.reshape(-1, grad.shape[-1])
        grads[f"filter{layer}"] = (by_patch.T @ by_pixel).reshape(filters.shape)
        grads[f"bias{layer}"] = by_pixel.sum(axis=0)
        return conv2d_backprop_input(inputs.shape, filters, grad, [1, 1, 1, 1], padding)

    # The forward pass in reverse. A ReLU passes gradients on where it let the signal through.
    grad = through_conv(3, hidden2, score_grad[:, None, None], "VALID")
    grad = through_conv(2, trace.pooled, grad * (hidden2 > 0), "SAME")
    grad = fractional_avg_pool_grad(hidden1.shape, grad, trace.rows, trace.cols)
    image_grad = through_conv(1, trace.images, grad * (hidden1 > 0), "SAME")  # unused in training
    return grads, image_grad


def softmax(scores: Array) -> Array:
    """Turn scores into probabilities."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    probs: Array = powers / powers.sum(axis=1, keepdims=True)
    return probs


def cross_entropy(scores: Array, labels: Ints) -> tuple[float, Array]:
    """Return the mean loss and its gradient with respect to the scores."""
    probs = softmax(scores)
    each = np.arange(len(labels))
    loss = -np.log(probs[each, labels] + np.finfo(probs.dtype).tiny).mean()
    probs[each, labels] -= 1
    return float(loss), probs / len(labels)


def train(
    images: Array, labels: Ints, epochs: int, rng: np.random.Generator
) -> tuple[Params, list[float]]:
    """Train from scratch; return the parameters and the loss at every step."""
    params = init_params(rng)
    speed = {name: np.zeros_like(value) for name, value in params.items()}
    losses: list[float] = []
    batches = len(images) // BATCH
    total = epochs * batches
    with tqdm(total=total, desc="training", unit="step") as bar:
        for _ in range(epochs):
            order = rng.permutation(len(images))
            for picked in np.array_split(order, batches):
                scores, trace = forward(params, images[picked], rng)
                loss, score_grad = cross_entropy(scores, labels[picked])
                grads, _ = backward(params, trace, score_grad)
                rate = LEARNING_RATE * (1 - len(losses) / total)  # fades to zero
                for name, grad in grads.items():
                    speed[name] = MOMENTUM * speed[name] + grad
                    params[name] -= rate * speed[name]
                losses.append(loss)
                bar.set_postfix(loss=f"{np.mean(losses[-batches:]):.4f}", refresh=False)
                bar.update()
    return params, losses


def predict(params: Params, images: Array, rng: np.random.Generator) -> Ints:
    """Pick the likeliest class, averaged over several draws of the pooling sequences."""
    votes = [softmax(forward(params, images, rng)[0]) for _ in range(VOTES)]
    return np.asarray(np.mean(votes, axis=0).argmax(axis=1))


def draw(path: Path, losses: list[float], images: Array, labels: Ints, guesses: Ints) -> None:
    """Write the loss curve and a grid of held-out digits, the misread ones first."""
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.35])

    axes = left.subplots()
    window = min(40, len(losses))
    smooth = np.convolve(losses, np.full(window, 1 / window), mode="valid")
    steps = np.arange(1, len(losses) + 1)
    axes.plot(steps, losses, color="#b9d3ea", linewidth=0.8, label="each step")
    axes.plot(steps[window - 1 :], smooth, color="#1f5f99", label=f"mean of {window} steps")
    axes.set(yscale="log", xlabel="step", ylabel="cross-entropy", title="Training loss")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)

    wrong = guesses != labels
    shown = np.argsort(~wrong, kind="stable")  # misread first, otherwise in their own order
    right.suptitle(f"Held-out digits as read: {wrong.sum()} of {len(labels)} wrong (red, first)")
    for place, i in zip(right.subplots(5, 8).flat, shown, strict=False):
        place.imshow(images[i, :, :, 0], cmap="gray_r")
        place.set(xticks=[], yticks=[])
        color = "#c0202a" if wrong[i] else "#9a9a9a"
        place.spines[:].set(color=color, linewidth=2.5 if wrong[i] else 0.8)
        text = f"{guesses[i]}, not {labels[i]}" if wrong[i] else f"{guesses[i]}"
        place.set_title(text, color=color if wrong[i] else "black", fontsize=10, pad=3)
    FigureCanvasAgg(figure).print_figure(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> float:
    """Train, report, draw; return the accuracy on held-out digits."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=25, help="passes over the training digits")
    parser.add_argument("--out", type=Path, default=Path("train_digits.png"), help="picture (PNG)")
    parser.add_argument("--seed", type=int, default=0, help="fixes the split and every draw")
    options = parser.parse_args(argv)
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    digits = load_digits()
    images = (digits.images[..., None] / 16).astype(np.float32)  # gray levels 0..16 to 0..1
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, digits.target, test_size=0.2, random_state=options.seed, stratify=digits.target
    )
    rng = np.random.default_rng(options.seed)
    params, losses = train(train_images, train_labels, options.epochs, rng)
    guesses = predict(params, test_images, rng)
    accuracy = float((guesses == test_labels).mean())
    draw(options.out, losses, test_images, test_labels, guesses)

    last_epoch = losses[-len(losses) // options.epochs :]
    print(
        f"loss {np.mean(last_epoch):.4f} over the last epoch, {accuracy:.1%} of {len(test_labels)} "
        f"held-out digits read correctly, picture in {options.out}"
    )
    return accuracy


if __name__ == "__main__":
    main()
