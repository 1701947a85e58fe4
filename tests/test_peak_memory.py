"""How much memory calls need beside their arguments and results, at their peak."""

import platform
import sys

import pytest
from processes import run_plain

CODE = """
import os, sys
import numpy as np
import numba_gradops as ng

def peak(call):
    "Memory at the peak of a call, in bytes above what there was before."
    call()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    call()
    return status("VmHWM") - before

def status(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name + ":"))

rng = np.random.default_rng(0)
form, algorithm, dtype = sys.argv[1:]
sizes, outs = (4, 56, 56, 96), 160
weights = rng.standard_normal((3, 3, 96, outs)).astype(dtype)
gradient = rng.standard_normal((4, 56, 56, outs)).astype(dtype)
if form == "NCHW":
    sizes = (4, 96, 56, 56)
    gradient = np.ascontiguousarray(gradient.transpose(0, 3, 1, 2))
out = np.zeros(sizes, dtype)
arguments = sizes, weights, gradient, [1, 1, 1, 1], "SAME"
print(peak(lambda: ng.conv2d_backprop_input(
    *arguments, data_format=form, algorithm=algorithm, out=out)), weights.nbytes)
"""

MIB = 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [(a, d) for a in ("direct", "winograd") for d in ("float32", "float64")]
    + [("direct", "float16")],
)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_a_call_needs_the_filter_and_a_few_mebibytes_a_thread(data_format, algorithm, dtype):
    code = f"import sys\nsys.argv[1:] = {[data_format, algorithm, dtype]}\n" + CODE
    # The allocator would keep what the first call frees, and the second one would hide in it.
    at_once = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = run_plain(code, check=False, NUMBA_NUM_THREADS="2", **at_once)
    if "clear_refs" in done.stderr:
        pytest.skip("the kernel does not let a process reset its peak")
    assert done.returncode == 0, done.stderr
    peak, filter_bytes = map(int, done.stdout.split())
    if dtype == "float16":
        filter_bytes *= 4  # widened, and in another order
    filters = filter_bytes if algorithm == "direct" else max(6.25 * filter_bytes, 8 * MIB)
    copies = 8 * MIB if data_format == "NCHW" else 0  # the gradient of a few images
    assert peak <= filters + copies + 2 * 4 * MIB
    if algorithm == "winograd" and platform.libc_ver()[0] == "glibc":
        assert peak >= filter_bytes  # its transform is there, and is seen
