"""The tracked benchmarks run, refuse wrong results, and measure what they say.

Suites run in processes of their own: they fix the number of threads, which Numba reads once.
"""

import platform
import re
from pathlib import Path

import numpy as np
import pytest
from processes import run_plain

from numba_gradops import _device, conv2d_backprop_input
from numba_gradops._layers import ConvLayer
from numba_gradops.cpu import conv2d as launcher

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="tells glibc to free at once"
)

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"

# Small layers under the names of the large ones, and a way to run a suite.
PREPARE = """
import importlib, inspect, subprocess, sys
from suites import layers

def small(layer):
    batch, rows, cols, channels = layer.input
    return layer._replace(input=(2, min(rows, 19), min(cols, 17), channels))

for group in ("LAYERS", "OTHERS", "POOLS"):
    setattr(layers, group, tuple(small(layer) for layer in getattr(layers, group)))

def benchmarks(module):
    "List class, method and parameters of a suite: the last choice of each, which is two threads."
    module = importlib.import_module("suites." + module)
    for _, suite in inspect.getmembers(module, inspect.isclass):
        if suite.__module__ != module.__name__ or suite.__name__.startswith("_"):
            continue
        params = getattr(suite, "params", ())
        several = bool(params) and isinstance(params[0], tuple)
        chosen = tuple(p[-1] for p in params) if several else tuple(params[-1:])
        for name, _ in inspect.getmembers(suite, inspect.isfunction):
            if name.startswith(("time_", "track_", "timeraw_")):
                yield suite(), name, chosen

def run(module):
    for suite, name, chosen in benchmarks(module):
        given = (suite.setup_cache(),) if hasattr(suite, "setup_cache") else ()
        given = tuple(cache for cache in given if cache is not None) + chosen
        for _ in range(2):  # airspeed velocity repeats it
            getattr(suite, "setup", lambda *_: None)(*given)
        made = getattr(suite, name)(*given)
        if name.startswith("timeraw_"):  # code for another process, to be timed and before
            statement, before = (made, "") if isinstance(made, str) else made
            subprocess.run([sys.executable, "-c", before + "\\n" + statement], check=True)
        print(type(suite).__name__, name)
"""


def run(code: str, **env: str) -> str:
    return run_plain(PREPARE + code, PYTHONPATH=str(BENCHMARKS), **env).stdout


@pytest.mark.parametrize(
    ("module", "count"),
    [
        ("convolution", 7),
        ("pooling", 3),
        ("small_calls", 2),
        ("startup", 4),
        pytest.param("memory", 3, marks=needs_glibc),
    ],
)
def test_each_benchmark_runs(module, count):
    assert len(run(f"run({module!r})").splitlines()) == count


def test_names_in_suites_are_names_of_layers():
    """Only a run of everything would find the others."""
    code = """
from suites import convolution, memory
names = {layer.name for layer in layers.LAYERS + layers.OTHERS + layers.POOLS}
for suite in (
    convolution.OtherLayers, convolution.Threads, convolution.Algorithms, convolution.Types,
    convolution.Layouts, convolution.NewResult, memory.Convolution, memory.Pooling,
):
    params = suite.params
    print(set(params[0] if isinstance(params[0], tuple) else params) <= names)
"""
    assert set(run(code).split()) == {"True"}


@pytest.mark.parametrize("number", ["1.001", "float('nan')"])
@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("conv2d_backprop_input", "convolution(layers.LAYERS[1], {dtype!r}, threads=2)"),
        ("fractional_avg_pool_grad", "pooling(layers.POOLS[0], {dtype!r}, threads=2)"),
    ],
)
def test_a_wrong_result_is_not_timed(function, call, number):
    """One element in the last image is wrong."""
    code = f"""
import numba_gradops
from suites import _calls
right = numba_gradops.{function}
def wrong(*arguments, **more):
    result = right(*arguments, **more)
    at = abs(result[-1]).argmax()
    result[-1].reshape(-1)[at] *= {number}
    return result
for dtype in ("float32", "float64"):
    for numba_gradops.{function} in (right, wrong):
        _calls.convolution.cache_clear(), _calls.pooling.cache_clear()
        try:
            _calls.{call.replace("{dtype!r}", "dtype")}
        except ValueError as error:
            print(error)
        else:
            print("fine")
"""
    lines = run(code).splitlines()
    assert lines[0::2] == ["fine", "fine"]
    assert all(line.startswith("wrong result: off by") for line in lines[1::2])
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("conv2d_backprop_input", "convolution(layers.LAYERS[1], threads=2)"),
        ("fractional_avg_pool_grad", "pooling(layers.POOLS[0], threads=2)"),
    ],
)
def test_a_call_that_is_timed_is_the_one_that_is_checked(function, call):
    """It is given a result to write into, which already holds what an earlier call wrote."""
    code = f"""
import numba_gradops
from suites import _calls
right = numba_gradops.{function}
def idle(*arguments, out=None, **more):
    return right(*arguments, **more) if out is None else out
numba_gradops.{function} = idle
try:
    _calls.{call}
except ValueError as error:
    print(error)
"""
    assert run(code).startswith("wrong result: off by")


def test_small_calls_are_timed_many_at_a_time():
    """A `setup` would make airspeed velocity time calls of microseconds one by one."""
    code = """
from suites.small_calls import SmallCalls
print(hasattr(SmallCalls, "setup"), SmallCalls.number)
"""
    assert run(code).split() == ["False", "1000"]


def test_other_numbers_of_threads_than_asked_for_are_refused():
    code = """
import numba
from suites import _calls
_calls.fix_threads(2)
try:
    _calls.fix_threads(1)
except RuntimeError as error:
    print(error)
"""
    assert run(code, NUMBA_NUM_THREADS="2") == "Numba runs 2 threads already, not 1\n"


@needs_glibc
def test_peak_memory_sees_the_transformed_filter():
    """Winograd's F(4x4, 3x3) makes 36 numbers of 9."""
    code = """
from suites import _peak_memory
layer = layers.LAYERS[2]
print(4 * 4 * 9 * layer.input[3] * layer.out_channels)
print(_peak_memory.measure("convolution", layer.name, "winograd", "NHWC")["beside"])
"""
    filter_bytes, beside = map(int, run(code).split())
    assert filter_bytes <= beside <= 4 * filter_bytes


def test_no_cuda_benchmark_without_a_device():
    code = (
        "from numba_gradops._device import cuda_problems\nprint(cuda_problems() != [])\nrun('cuda')"
    )
    printed = run(code).split("\n", 1)
    if printed[0] == "False":
        pytest.skip("there is a device")
    assert printed[1] == ""


def test_cuda_benchmarks_where_a_device_is():
    """The device is Numba's simulator, and the CPU computes for it."""
    code = """
import numpy as np
import numba_gradops
from numba import cuda
from numba_gradops import _device
_device.cuda_problems = list
cuda.synchronize = lambda: print("synchronized")

def computed_here(function):
    def call(*, device, out=None, **arguments):
        assert device == "cuda"
        taken = {
            name: value.copy_to_host() if hasattr(value, "copy_to_host") else value
            for name, value in arguments.items()
        }
        result = function(**taken)
        on_host = isinstance(arguments["out_backprop"], np.ndarray)
        return result if on_host else cuda.to_device(result)
    return call

for name in ("conv2d_backprop_input", "fractional_avg_pool_grad"):
    setattr(numba_gradops, name, computed_here(getattr(numba_gradops, name)))
run("cuda")
"""
    lines = run(code, NUMBA_ENABLE_CUDASIM="1").splitlines()
    assert [line for line in lines if line != "synchronized"] == [
        "Convolution time_layer",
        "ConvolutionTypes time_layer",
        "HostArrays time_layer",
        "Pooling time_layer",
        "SmallCalls time_call",
    ]
    assert lines.count("synchronized") == 4


def test_the_slowdown_planted_by_the_instructions_is_one(rng, monkeypatch):
    """Their commands are copied for years: what they append must fit the launcher of today."""
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    file, added = re.search(r"cat >> (\S+) <<'END'\n(.*?)\nEND\n", text, re.DOTALL).groups()
    assert Path(launcher.__file__).as_posix().endswith(file)
    calls = []

    def compute(*arguments):
        calls.append(len(arguments[-1]))
        original(*arguments)

    original = launcher.conv2d_backprop_input
    planted = {"conv2d_backprop_input": compute}
    exec(added, planted)
    monkeypatch.setattr(_device._cpu(), "conv2d_backprop_input", planted["conv2d_backprop_input"])
    layer = ConvLayer("small", (4, 6, 6, 16), (3, 3), 16)
    arguments = layer.arguments(rng, np.float32)
    for algorithm, expected in ("direct", [2, 4]), ("auto", [4]):
        calls.clear()
        conv2d_backprop_input(**arguments, algorithm=algorithm)
        assert calls == expected
