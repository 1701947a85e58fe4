"""Compare with PyTorch (cuDNN) on an NVIDIA GPU, check every result first, and predict before it.

    python benchmarks/peers.py --device cuda --json cuda.json

Each call is timed by CUDA events, after the second-level cache was emptied, in rounds through all
candidates in random order. The limits are measured too: bytes of a copy, products of cuBLAS in
float32. Beside each speed stands what was predicted for an H200 before there was one to run on.

With --dry-run everything but the device is exercised: tiny layers, computed on the CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from peer_calls import Call, to_numpy, torch_calls
from suites.layers import CUDA_LAYERS, CUDA_POOLS, ConvLayer, PoolLayer

import numba_gradops
from numba_gradops import _reference

Layer = ConvLayer | PoolLayer

# What is expected of an H200, per second: float32 multiply-adds in FFMA instructions, counted as
# two operations (cuBLAS reaches 47e12), and bytes (a copy moves 4.3e12).
PREDICTED_OPERATIONS = (38e12, 47e12)
PREDICTED_BYTES = (3.9e12, 4.3e12)

TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-12}
MARGIN = 1e-4  # of float32


class Work(NamedTuple):
    """What a layer takes: operations of a direct sum, and bytes read and written once."""

    operations: int
    bytes: int

    def seconds(self, operations: float, moved: float) -> float:
        """Give the time that is left if only one of both takes any."""
        return max(self.operations / operations, self.bytes / moved)


def work(layer: Layer, itemsize: int) -> Work:
    """Count the work of a layer."""
    elements = math.prod(layer.input) + math.prod(layer.gradient_shape)
    if isinstance(layer, PoolLayer):
        return Work(0, elements * itemsize)
    taps = math.prod(layer.filter) * layer.input[3] // layer.groups
    moved = (elements + taps * layer.out_channels) * itemsize
    return Work(2 * math.prod(layer.gradient_shape) * taps, moved)


class Cuda:
    """The GPU that PyTorch sees first."""

    def __init__(self) -> None:
        import torch

        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        self._torch = torch
        # Larger than any second-level cache.
        self._evicted = torch.empty(2**28, dtype=torch.uint8, device="cuda")

    def describe(self) -> dict[str, str]:
        torch = self._torch
        return {
            "device": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        }

    def upload(self, array: np.ndarray) -> Any:
        if array.dtype.name == "bfloat16":
            bits = self._torch.from_numpy(array.view(np.int16)).cuda()
            return bits.view(self._torch.bfloat16)
        return self._torch.from_numpy(array).cuda()

    def peers(self, layer: Layer, arguments: dict[str, Any]) -> dict[str, Call]:
        make = torch_calls(1, "cuda")
        call = make(layer, arguments) if make else None
        return {} if call is None else {"cudnn": call}

    def timed(self, call: Call) -> Callable[[], float]:
        """Start a call between two events; give what waits for it and returns its seconds."""
        start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._evicted.zero_()
        start.record()
        call()
        stop.record()

        def seconds() -> float:
            stop.synchronize()
            return float(start.elapsed_time(stop)) / 1e3

        return seconds

    def limits(self, median: Callable[[Call], float]) -> tuple[float, float]:
        """Measure operations of a large float32 matrix product and bytes of a copy a second."""
        torch = self._torch
        a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
        product = median(lambda: torch.mm(a, b))
        source = torch.empty(2**29, device="cuda").uniform_()
        target = torch.empty_like(source)
        copied = median(lambda: target.copy_(source))
        return 2 * 8192**3 / product, 2 * source.nbytes / copied


class Dry:
    """No GPU: calls run on the CPU, and the limits are the predicted ones."""

    def describe(self) -> dict[str, str]:
        return {"device": "none: a dry run on the CPU"}

    def upload(self, array: np.ndarray) -> Any:
        return array

    def peers(self, layer: Layer, arguments: dict[str, Any]) -> dict[str, Call]:
        if not isinstance(layer, ConvLayer):
            return {}
        return {"reference": lambda: _reference.conv2d_backprop_input(**arguments)}

    def timed(self, call: Call) -> Callable[[], float]:
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        return lambda: seconds

    def limits(self, median: Callable[[Call], float]) -> tuple[float, float]:
        median(lambda: None)
        return PREDICTED_OPERATIONS[1], PREDICTED_BYTES[1]


def shrunk(layer: Layer) -> Layer:
    """Make a layer of the same kind that takes no time."""
    _, rows, cols, channels = layer.input
    groups = min(layer.groups, 4) if isinstance(layer, ConvLayer) else 1
    small = -(-min(channels, 8) // groups) * groups
    shape = (1, min(rows, 14), min(cols, 12), small)
    if not isinstance(layer, ConvLayer):
        return layer._replace(input=shape)
    outs = -(-min(layer.out_channels, 8) // groups) * groups
    return layer._replace(input=shape, out_channels=outs, groups=groups)


def checked(
    layer: Layer, arguments: dict[str, Any], ours: np.ndarray, peers: dict[str, Call]
) -> float:
    """Compare with all peers, or the first image with our CPU's bits; give the largest error."""
    name = ours.dtype.name
    if isinstance(layer, PoolLayer):
        first = dict(arguments, out_backprop=arguments["out_backprop"][:1])
        first["orig_input_tensor_shape"] = (1, *layer.input[1:])
        exact = numba_gradops.fractional_avg_pool_grad(**first)
        if exact.tobytes() != ours[:1].tobytes():
            msg = f"{layer.name}: the first image has other bits than on the CPU"
            raise SystemExit(msg)
        return 0.0
    whole = ours.astype(np.float64)
    errors = [0.0]
    for peer, call in peers.items():
        theirs = to_numpy(call(), layer.data_format)
        errors.append(float(np.abs(theirs - whole).max() / np.abs(theirs).max()))
        if not errors[-1] <= TOLERANCE.get(name, MARGIN):
            msg = f"{layer.name}: {peer} and numba_gradops differ by {errors[-1]}"
            raise SystemExit(msg)
    return max(errors)


def fetched(result: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Bring a result to the host as it is."""
    if type(result).__module__.startswith("torch"):
        if dtype.name == "bfloat16":
            import torch

            return np.asarray(result.view(torch.int16).cpu().numpy().view(dtype))
        return np.asarray(result.cpu().numpy())
    return np.asarray(result)


def in_cupy(uploaded: dict[str, Any], function: Callable[..., Any]) -> Call | None:
    """Give our call with CuPy's arrays, on the same memory; None where there is no CuPy."""
    try:
        import cupy
    except ImportError:
        return None
    moved = {
        name: cupy.from_dlpack(value) if type(value).__module__.startswith("torch") else value
        for name, value in uploaded.items()
    }
    return lambda: function(**moved)


def measure(full: Layer, device: Cuda | Dry, options: argparse.Namespace) -> dict[str, Any]:
    """Check all candidates against ours, then time them in turn."""
    layer = shrunk(full) if options.dry_run else full
    rng = np.random.default_rng(0)
    arguments = layer.arguments(rng, options.numpy_dtype)
    function = (
        numba_gradops.conv2d_backprop_input
        if isinstance(layer, ConvLayer)
        else numba_gradops.fractional_avg_pool_grad
    )
    uploaded = {
        name: device.upload(value) if name in {"filter", "out_backprop"} else value
        for name, value in arguments.items()
    }
    peers = device.peers(layer, arguments)
    result = fetched(function(**uploaded), np.dtype(options.numpy_dtype))
    again = fetched(function(**uploaded), np.dtype(options.numpy_dtype))
    if result.tobytes() != again.tobytes():
        msg = f"{layer.name}: two runs gave different bits"
        raise SystemExit(msg)
    error = checked(layer, arguments, result, peers)
    calls: dict[str, Call] = {"ours": lambda: function(**uploaded), **peers}
    through_cupy = (
        None
        if isinstance(device, Dry) or options.dtype == "bfloat16"
        else in_cupy(uploaded, function)
    )
    if through_cupy is not None:
        calls["ours, cupy"] = through_cupy
        if through_cupy().get().tobytes() != result.tobytes():
            msg = f"{layer.name}: CuPy's arrays gave different bits"
            raise SystemExit(msg)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(options.rounds):
        for name in rng.permutation(list(calls)):
            times[name].append(device.timed(calls[name])())
    itemsize = result.itemsize
    need = work(full, itemsize)
    return {
        "layer": full.name,
        "operations": work(layer, itemsize).operations,
        "bytes": work(layer, itemsize).bytes,
        "error": error,
        "predicted": [
            need.seconds(operations, moved)
            for operations, moved in zip(PREDICTED_OPERATIONS, PREDICTED_BYTES, strict=True)
        ],
        "seconds": times,
    }


def report(entry: dict[str, Any], limits: tuple[float, float]) -> str:
    """Put the medians of a layer beside what was predicted and the limits, in a line."""
    need = Work(entry["operations"], entry["bytes"])
    amount, unit = (need.operations, "TFLOP/s") if need.operations else (need.bytes, "TB/s")
    slow, fast = (seconds * 1e6 for seconds in entry["predicted"])
    limit = need.seconds(*limits)
    ours = statistics.median(entry["seconds"]["ours"])
    found = "".join(
        f"  {name} {seconds * 1e6:.4g} us ({amount / seconds / 1e12:.3g} {unit}, "
        f"{seconds / ours:.2f}x)"
        for name, times in entry["seconds"].items()
        for seconds in [statistics.median(times)]
    )
    return (
        f"{entry['layer']:<20}predicted {fast:.4g} to {slow:.4g} us  limit {limit * 1e6:.4g} us"
        f"{found}  error {entry['error']:.1e}"
    )


def chosen(options: argparse.Namespace) -> Iterator[Layer]:
    """List the layers to measure, pooling first: it shows most about the machine."""
    for layer in (*CUDA_POOLS, *CUDA_LAYERS):
        if options.only and layer.name not in options.only:
            continue
        named = layer
        if isinstance(layer, ConvLayer):
            named = layer._replace(data_format=options.data_format)
        yield named


def main(options: argparse.Namespace) -> None:
    """Measure until all layers are done or the time is over; print and write what was found."""
    began = time.perf_counter()
    options.numpy_dtype = options.dtype
    if options.dtype == "bfloat16":
        import ml_dtypes

        options.numpy_dtype = ml_dtypes.bfloat16
    device = Dry() if options.dry_run else Cuda()

    def median(call: Call) -> float:
        device.timed(call)()
        return statistics.median(device.timed(call)() for _ in range(options.rounds))

    limits = device.limits(median)
    about: dict[str, Any] = {
        **device.describe(),
        "numba_gradops": numba_gradops.__version__,
        "dtype": options.dtype,
        "data_format": options.data_format,
        "limits": {"operations": limits[0], "bytes": limits[1]},
    }
    print(json.dumps(about), flush=True)
    entries, left = [], []
    for layer in chosen(options):
        if time.perf_counter() - began > options.seconds:
            left.append(layer.name)
            continue
        entries.append(measure(layer, device, options))
        print(report(entries[-1], limits), flush=True)
        if options.json:  # after each layer: a run that is cut off leaves what it has
            options.json.write_text(json.dumps(about | {"entries": entries}, indent=1))
    if left:
        print(f"no time was left for: {', '.join(left)}", file=sys.stderr)
