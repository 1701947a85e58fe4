"""What a new process waits for: the import, and the first call, with and without compilation."""

from pathlib import Path

from . import _calls
from .layers import FIRST_CONVOLUTION, FIRST_POOL

_BENCHMARKS = str(Path(__file__).parents[1])

# Runs before the clock starts: NumPy loaded, arguments made, the cache of compiled code chosen.
_PREPARE = """
import os, sys, tempfile
import numpy as np
sys.path.insert(0, {benchmarks!r})
from suites.layers import {layer} as layer
arguments = layer.arguments(np.random.default_rng(0), np.float32)
os.environ["NUMBA_NUM_THREADS"] = "2"
{cache}
assert not {{"numba", "numba_gradops"}} & set(sys.modules)
"""

_EMPTY_CACHE = """
folder = tempfile.TemporaryDirectory()
os.environ["NUMBA_CACHE_DIR"] = folder.name
"""


def _code(function: str, cache: str) -> tuple[str, str]:
    """Give the statement to time, and what to do before it."""
    layer = "FIRST_POOL" if "pool" in function else "FIRST_CONVOLUTION"
    prepare = _PREPARE.format(benchmarks=_BENCHMARKS, layer=layer, cache=cache)
    return f"import numba_gradops\nnumba_gradops.{function}(**arguments)", prepare


class Import:
    """`import numba_gradops` in a process that has loaded nothing, and NumPy's part of it."""

    rounds = 2
    repeat = 5
    warmup_time = 0

    def timeraw_numba_gradops(self) -> str:
        return "import numba_gradops"

    timeraw_numba_gradops.pretty_name = "import numba_gradops"

    def timeraw_numpy(self) -> str:
        return "import numpy"

    timeraw_numpy.pretty_name = "import numpy, for comparison"


class FirstCall:
    """Import of the package and first call, in a process that has loaded NumPy."""

    params = ("conv2d_backprop_input", "fractional_avg_pool_grad")
    param_names = ("function",)
    warmup_time = 0
    timeout = 300

    def setup_cache(self) -> None:
        """Check both calls, which also brings their loops into the user's cache."""
        _calls.convolution(FIRST_CONVOLUTION, threads=2)
        _calls.pooling(FIRST_POOL, threads=2)

    def timeraw_cold_cache(self, function: str) -> tuple[str, str]:
        return _code(function, _EMPTY_CACHE)

    timeraw_cold_cache.pretty_name = "import and first call, cold cache"
    timeraw_cold_cache.rounds = 1
    timeraw_cold_cache.repeat = 2

    def timeraw_warm_cache(self, function: str) -> tuple[str, str]:
        return _code(function, "")

    timeraw_warm_cache.pretty_name = "import and first call, warm cache"
    timeraw_warm_cache.rounds = 2
    timeraw_warm_cache.repeat = 5
