"""Compare with TensorFlow and PyTorch, where they are installed: same calls, same process, in turn.

    python benchmarks/peers.py --threads 2 --json peers.json --chart peers.png

Every result is checked against ours before anything is timed. Rounds go through all candidates of
a layer, so that a disturbance of the machine meets all of them; ratios are quoted from the minimum
and from the median. Set the number of threads here, not in the environment: all get the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Seconds before each call: the threads of the candidate before it go on spinning for a while.
PAUSE = 0.01


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float16", "bfloat16", "float32", "float64", "int32", "int64"),
    )
    parser.add_argument("--data-format", default="NHWC", choices=("NHWC", "NCHW"))
    parser.add_argument("--algorithms", nargs="+", default=["auto", "direct"])
    parser.add_argument("--set", default="layers", choices=("layers", "others", "pools"))
    parser.add_argument("--only", nargs="+", help="names of layers")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    cuda = parser.add_argument_group("with --device cuda")
    cuda.add_argument("--dry-run", action="store_true", help="tiny layers, on the CPU")
    cuda.add_argument("--seconds", type=float, default=400, help="begin no layer after these")
    return parser.parse_args()


OPTIONS = parse() if __name__ == "__main__" else None
if OPTIONS:
    # Before any of the libraries is loaded: they read these once.
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(OPTIONS.threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from peer_calls import Call, tensorflow_calls, to_numpy, torch_calls  # noqa: E402
from roofline import copied_bytes_per_second, products_per_second  # noqa: E402
from suites.layers import LAYERS, OTHERS, POOLS, ConvLayer  # noqa: E402

import numba_gradops  # noqa: E402 - after the thread counts


def candidates(layer: Any, arguments: dict[str, Any], options: argparse.Namespace) -> dict:
    calls: dict[str, Call] = {}
    if isinstance(layer, ConvLayer):
        for algorithm in options.algorithms:
            calls[algorithm] = lambda a=algorithm: numba_gradops.conv2d_backprop_input(
                **arguments, algorithm=a
            )
    else:
        calls["auto"] = lambda: numba_gradops.fractional_avg_pool_grad(**arguments)
    for name, make in options.peers.items():
        call = make(layer, arguments)
        if call is None:
            continue
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a peer may refuse a call in its own way
            print(f"  {name} refuses {layer.name}: {type(error).__name__}", file=sys.stderr)
            continue
        calls[name] = call
    return calls


def measure(layer: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Check all candidates against ours, then time them in turn."""
    rng = np.random.default_rng(0)
    arguments = layer.arguments(rng, options.numpy_dtype)
    calls = candidates(layer, arguments, options)
    data_format = arguments.get("data_format", "NHWC")
    ours = next(iter(calls.values()))().astype(np.float64)
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-12}.get(options.dtype, 1e-4)
    for name, call in calls.items():
        error = np.abs(to_numpy(call(), data_format) - ours).max() / np.abs(ours).max()
        if not error <= tolerance:
            msg = f"{name} and numba_gradops differ on {layer.name}: {error}"
            raise SystemExit(msg)
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for _ in range(options.rounds):
        # In another order each time: who comes after its like finds the caches warm.
        for name in rng.permutation(names):
            call = calls[name]
            time.sleep(PAUSE)
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    moved = ours.size * arguments["out_backprop"].itemsize
    moved += sum(arguments[name].nbytes for name in ("out_backprop", "filter") if name in arguments)
    if isinstance(layer, ConvLayer):
        amount = 2 * arguments["out_backprop"].size * arguments["filter"][..., 0].size
        unit = "GFLOP/s"
    else:
        amount, unit = moved, "GB/s"
    return {"layer": layer.name, "amount": amount, "bytes": moved, "unit": unit, "seconds": times}


def limit(entry: dict[str, Any], roofline: dict[str, float]) -> float:
    """Give the speed at which the direct sum would run if products or bytes alone took time."""
    seconds = entry["bytes"] / roofline["bytes"]
    if entry["unit"] == "GFLOP/s":
        seconds = max(seconds, entry["amount"] / 2 / roofline["products"])
    return entry["amount"] / seconds / 1e9


def ratio(entry: dict[str, Any], name: str, pick: Callable[[list[float]], float]) -> float | None:
    """Give how many times faster `name` is than the better peer."""
    peers = [pick(t) for peer, t in entry["seconds"].items() if peer in ("tensorflow", "torch")]
    return min(peers) / pick(entry["seconds"][name]) if peers else None


def report(entries: list[dict[str, Any]], roofline: dict[str, float]) -> None:
    names = list(dict.fromkeys(name for entry in entries for name in entry["seconds"]))
    ours = [name for name in names if name not in ("tensorflow", "torch")]
    print(
        f"{'layer':<18}"
        + "".join(f"{name:>12}" for name in (*names, "limit"))
        + "   ratio to better peer"
    )
    for entry in entries:
        speeds = "".join(
            f"{entry['amount'] / min(entry['seconds'][name]) / 1e9:>12.1f}"
            if name in entry["seconds"]
            else f"{'-':>12}"
            for name in names
        )
        speeds += f"{limit(entry, roofline):>12.1f}"
        ratios = [
            f"{name} {low:.2f} ({middle:.2f})"
            for name in ours
            if (low := ratio(entry, name, min)) is not None
            and (middle := ratio(entry, name, statistics.median)) is not None
        ]
        print(f"{entry['layer']:<18}{speeds}   {', '.join(ratios)}", flush=True)
    for name in ours:
        lows = [r for e in entries if name in e["seconds"] and (r := ratio(e, name, min))]
        if lows:
            mean = statistics.geometric_mean(lows)
            print(f"{name}: geometric mean {mean:.2f}, worst {min(lows):.2f} (minimum times)")
    print("speeds are " + entries[0]["unit"] + "; ratios from minimum (median) times")
    print("limit: multiply-adds from registers or bytes copied, whichever takes longer")


def chart(
    entries: list[dict[str, Any]], roofline: dict[str, float], path: Path, title: str
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for entry in entries for name in entry["seconds"]))
    colors = {"tensorflow": "#e8a33d", "torch": "#c8553d", "direct": "#8fb8de", "auto": "#1f5f99"}
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        heights = [
            entry["amount"] / min(entry["seconds"][name]) / 1e9 if name in entry["seconds"] else 0
            for entry in entries
        ]
        places = np.arange(len(entries)) + (i - len(names) / 2 + 0.5) * width
        label = name if name in ("tensorflow", "torch") else f"numba_gradops, {name}"
        axes.bar(places, heights, width, color=colors.get(name), label=label)
    limits = [limit(entry, roofline) for entry in entries]
    places = np.arange(len(entries))
    label = "limit of the direct sum"
    axes.hlines(limits, places - 0.45, places + 0.45, color="#444444", label=label)
    axes.set_xticks(
        range(len(entries)), [entry["layer"] for entry in entries], rotation=40, ha="right"
    )
    axes.set(ylabel=entries[0]["unit"], title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, ncols=len(names) + 1)
    FigureCanvasAgg(figure).print_figure(path, dpi=110)


def versions(peers: dict[str, Any]) -> dict[str, str]:
    found = {"python": platform.python_version(), "numba_gradops": numba_gradops.__version__}
    for name in ("numba", "numpy", *peers):
        found[name] = sys.modules[name].__version__
    return found


def roofline(options: argparse.Namespace) -> dict[str, float]:
    """Measure what the machine does at most in a second."""
    dtype = "float64" if options.dtype == "float64" else "float32"
    return {
        "products": products_per_second(options.threads, dtype),
        "bytes": copied_bytes_per_second(options.threads),
    }


def main(options: argparse.Namespace) -> None:
    if options.device == "cuda":
        import peers_cuda

        peers_cuda.main(options)
        return
    options.peers = {
        name: make
        for name, make in (
            ("tensorflow", tensorflow_calls(options.threads)),
            ("torch", torch_calls(options.threads)),
        )
        if make is not None
    }
    options.numpy_dtype = options.dtype
    if options.dtype == "bfloat16":
        import ml_dtypes

        options.numpy_dtype = ml_dtypes.bfloat16
    print("peers found:", ", ".join(options.peers) or "none", file=sys.stderr)
    layers = {"layers": LAYERS, "others": OTHERS, "pools": POOLS}[options.set]
    if options.set == "pools":
        layers = [layer._replace(overlapping=o) for o in (False, True) for layer in layers]
        layers = [
            layer._replace(name=layer.name + (" overl." if layer.overlapping else ""))
            for layer in layers
        ]
    else:
        layers = [layer._replace(data_format=options.data_format) for layer in layers]
    if options.only:
        layers = [layer for layer in layers if layer.name in options.only]
    # Before and after: a limit that something disturbed is none.
    before = roofline(options)
    entries = [measure(layer, options) for layer in layers]
    after = roofline(options)
    about = {
        "threads": options.threads,
        "dtype": options.dtype,
        "data_format": options.data_format,
        "roofline": {name: max(before[name], after[name]) for name in before},
        "processor": numba_gradops.show_config("dicts")["cpu"]["name"],
        "versions": versions(options.peers),
    }
    print(json.dumps(about))
    report(entries, about["roofline"])
    if options.json:
        options.json.write_text(json.dumps(about | {"entries": entries}, indent=1))
    if options.chart:
        title = f"{options.dtype}, {options.data_format}, {options.threads} threads"
        chart(entries, about["roofline"], options.chart, title)


if __name__ == "__main__":
    main(OPTIONS)
