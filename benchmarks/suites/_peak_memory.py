"""Print a process's memory before a call and what the call needs beside it, in bytes.

    python _peak_memory.py '["convolution", "resnet 28", "direct", "NHWC"]'

The process does nothing else: a reference computed in it would leave freed memory behind, in which
a call could hide; for the same reason what is freed has to go back to the system at once. The first
call, which loads the compiled code, is not the one measured.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def measure(*what: str) -> dict[str, int]:
    """Run this file in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(what)],
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    raise KeyError(name)


def _main(kind: str, layer: str, algorithm: str, data_format: str) -> None:
    # Not beside it: the folder of this file has a `cuda`, which is the name of a package too.
    sys.path[0] = str(Path(__file__).parents[1])

    import numpy as np

    import numba_gradops
    from suites import layers
    from suites._allocator import free_at_once

    free_at_once()
    rng = np.random.default_rng(0)
    if kind == "convolution":
        chosen = next(known for known in layers.LAYERS if known.name == layer)
        arguments = chosen._replace(data_format=data_format).arguments(rng, np.float32)
        arguments["algorithm"] = algorithm
        function = numba_gradops.conv2d_backprop_input
    else:
        chosen = next(known for known in layers.POOLS if known.name == layer)
        arguments = chosen.arguments(rng, np.float32)
        function = numba_gradops.fractional_avg_pool_grad
    out = function(**arguments)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present
    function(**arguments, out=out)
    print(json.dumps({"before": before, "beside": _status("VmHWM") - before}))


if __name__ == "__main__":
    _main(*json.loads(sys.argv[1]))
