"""Public bug reports about the process around a call: caches, forks, threads, drivers, imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
from numpy.typing import NDArray

import numba_gradops

PACKAGE = Path(numba_gradops.__file__).parent

# One call of each op whose right results are plain to see. From about 100 rows on the calls are
# large enough to be shared out over threads.
CALLS = """
import numpy as np
import numba_gradops

def both(rows=4, **options):
    image, half = np.ones((1, rows, rows, 4), np.float32), range(0, rows + 1, 2)
    filter = np.ones((3, 3, 4, 4), np.float32)
    return (
        numba_gradops.conv2d_backprop_input(
            image.shape, filter, image, [1, 1, 1, 1], "SAME", **options),
        numba_gradops.fractional_avg_pool_grad(
            image.shape, image[:, ::2, ::2], half, half, **options),
    )

def right(conv, pool):
    taps = np.full(conv.shape[1], 3.0)
    taps[[0, -1]] = 2
    return np.allclose(conv, 4 * np.outer(taps, taps)[:, :, None]) and (pool == 0.25).all()
"""


def python(
    code: str,
    *options: str,
    site: Path = PACKAGE.parent,
    env: Mapping[str, str | None] | None = None,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter; an environment variable of None is taken away."""
    changed = {"PYTHONPATH": str(site), **(env or {})}
    kept = {name: value for name, value in os.environ.items() if name not in changed}
    identity: dict[str, Any] = {} if user is None else {"user": user, "group": user}
    return subprocess.run(
        [sys.executable, "-P", "-B", *options, "-c", textwrap.dedent(code)],
        env=kept | {name: value for name, value in changed.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **identity,
    )


def assert_succeeds(process: subprocess.CompletedProcess[str]) -> None:
    assert process.returncode == 0, process.stderr


def test_every_report_without_a_call_has_its_test() -> None:
    reports = [report["id"].lower() for report in golden.bug_reports() if "call" not in report]
    assert len(reports) == 7
    for report in reports:
        assert any(name.startswith(f"test_{report}_") for name in globals()), report


@pytest.fixture
def unwritable_site() -> Iterator[Path]:
    """A copy of the package that any user may read and none but root may write to."""
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is closed to other users
        shutil.copytree(
            PACKAGE, Path(folder, "numba_gradops"), ignore=shutil.ignore_patterns("__pycache__")
        )
        inside = [Path(folder), *Path(folder).rglob("*")]
        for path in inside:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield Path(folder)
        for path in inside:
            path.chmod(0o755 if path.is_dir() else 0o644)


NOBODY = 65534


def may_become_nobody() -> bool:
    """Whether this process is root's and the interpreter is not for root's eyes only."""
    try:
        return os.geteuid() == 0 and python("import numba", user=NOBODY).returncode == 0
    except PermissionError:
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="needs the permissions of POSIX")
def test_n01_runs_where_nothing_can_be_written(unwritable_site: Path) -> None:
    user = NOBODY if may_become_nobody() else None
    # Root could make any directory, but not inside a file.
    home = "/dev/null/home" if user is None and os.geteuid() == 0 else "/nonexistent"
    before = sorted(unwritable_site.rglob("*"))
    process = python(
        CALLS + "assert right(*both()); print(numba_gradops.__file__)",
        "-W",
        "always",
        site=unwritable_site,
        user=user,
        env={"HOME": home, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None},
    )
    assert_succeeds(process)
    assert process.stdout.startswith(str(unwritable_site))
    assert process.stderr.count("Warning:") <= 1
    assert sorted(unwritable_site.rglob("*")) == before
    assert not Path(home).exists()


def test_n01_runs_from_a_zip_file(tmp_path: Path) -> None:
    site = Path(shutil.make_archive(str(tmp_path / "site"), "zip", PACKAGE.parent, PACKAGE.name))
    process = python(
        CALLS + "assert right(*both()); assert '.zip' in numba_gradops.__file__", site=site
    )
    assert_succeeds(process)


COUNT_COMPILATIONS = """
from numba.core import event
recorder = event.RecordingListener()
event.register("numba:compile", recorder)
"""


def test_n01_caches_where_numba_cache_dir_says(tmp_path: Path) -> None:
    env = {"NUMBA_CACHE_DIR": str(tmp_path)}
    code = COUNT_COMPILATIONS + CALLS + "assert right(*both()); print(len(recorder.buffer))"
    first = python(code, env=env)
    assert_succeeds(first)
    assert any(path.is_file() for path in tmp_path.rglob("*"))
    second = python(code, env=env)
    assert_succeeds(second)
    assert int(first.stdout) > 0
    assert int(second.stdout) == 0


def test_n01_zip_files_of_different_sources_share_no_compiled_code(tmp_path: Path) -> None:
    code = COUNT_COMPILATIONS + CALLS + "both(); print(len(recorder.buffer))"
    for version in ("old", "new"):
        copy = tmp_path / version / PACKAGE.name
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        with (copy / "_reference.py").open("a") as source:
            source.write(f"# {version}")
        site = shutil.make_archive(str(copy), "zip", copy.parent, PACKAGE.name)
        process = python(code, site=Path(site), env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")})
        assert_succeeds(process)
        assert int(process.stdout) > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_n03_forked_child_computes_too() -> None:
    code = """
import os, signal

assert right(*both(256)) and right(*both(4))
read, write = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)  # a child that hangs ends here
    try:
        verdict = b"right" if right(*both(256)) and right(*both(4)) else b"wrong"
        os.write(write, verdict)
    finally:
        os._exit(0)
os.close(write)
answer = os.read(read, 5)
_, status = os.waitpid(child, 0)
assert not os.WIFSIGNALED(status), f"child ended by signal {os.WTERMSIG(status)}"
assert answer == b"right", answer
assert right(*both(256))
"""
    # Python 3.12 and later warn of any fork in a process with threads.
    assert_succeeds(python(CALLS + code, "-W", "ignore::DeprecationWarning"))


CPU_OVER_WALL = """
import threading, time
import numba

def busy():
    both(512)
    wall, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < 0.5:
        both(512)
    print((time.process_time() - cpu) / (time.perf_counter() - wall))
"""


def test_n05_thread_limit_of_the_environment_is_kept() -> None:
    process = python(CALLS + CPU_OVER_WALL + "busy()", env={"NUMBA_NUM_THREADS": "1"})
    assert_succeeds(process)
    assert float(process.stdout) <= 1.2


def test_n05_thread_limit_of_a_worker_thread_is_kept() -> None:
    code = """
def work():
    numba.set_num_threads(1)
    busy()

worker = threading.Thread(target=work)
worker.start()
worker.join()
"""
    process = python(CALLS + CPU_OVER_WALL + code)
    assert_succeeds(process)
    assert float(process.stdout) <= 1.2


def read_only(array: NDArray[Any], folder: Path) -> NDArray[Any]:
    del folder
    array = array.copy()
    array.flags.writeable = False
    return array


def memory_mapped(array: NDArray[Any], folder: Path) -> NDArray[Any]:
    path = Path(tempfile.mkstemp(suffix=".npy", dir=folder)[1])
    np.save(path, array)
    return np.asanyarray(np.load(path, mmap_mode="r"))


def broadcast(array: NDArray[Any], folder: Path) -> NDArray[Any]:
    """A view of one row's memory, as many times as the array has rows."""
    del folder
    return np.broadcast_to(array[:1], array.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [read_only, memory_mapped, broadcast])
def test_n07_arrays_that_cannot_be_written_to_are_read(
    tmp_path: Path, kind: Any, dtype: str
) -> None:
    sizes, ends = np.array([3, 6, 6, 4]), np.array([0, 1, 4, 6])
    plain = {
        "conv2d_backprop_input": {
            "input_sizes": sizes,
            "filter": golden.array(dtype, [3, 3, 4, 5], "normal", seed=1),
            "out_backprop": golden.array(dtype, [3, 6, 6, 5], "normal", seed=2),
        },
        "fractional_avg_pool_grad": {
            "orig_input_tensor_shape": sizes,
            "out_backprop": golden.array(dtype, [3, 3, 3, 4], "normal", seed=3),
            "row_pooling_sequence": ends,
            "col_pooling_sequence": ends,
        },
    }
    for op, arguments in plain.items():
        other = {"strides": [1, 1, 1, 1], "padding": "SAME"} if "conv" in op else {}
        unwritable = {
            name: (read_only if array.ndim == 1 and kind is broadcast else kind)(array, tmp_path)
            for name, array in arguments.items()
        }
        writable = {name: array.copy() for name, array in unwritable.items()}
        function = getattr(numba_gradops, op)
        result = function(**unwritable, **other)
        np.testing.assert_array_equal(result, function(**writable, **other))
        for name, array in unwritable.items():
            assert not array.flags.writeable
            np.testing.assert_array_equal(array, writable[name])


NO_DRIVER = {"CUDA_VISIBLE_DEVICES": "-1", "NUMBA_CUDA_DRIVER": "/nonexistent/libcuda.so"}


@pytest.mark.parametrize(
    ("installed", "named"),
    [(True, r"driver|numba-cuda|GPU|no .*device"), (False, r"pip install .*numba.gradops\[cuda\]")],
    ids=["no-driver", "no-numba-cuda"],
)
def test_n09_without_cuda_the_cpu_works_silently_and_cuda_says_what_is_missing(
    installed: bool, named: str
) -> None:
    hide = "" if installed else "import sys; sys.modules['numba_cuda'] = None"
    code = f"""
assert right(*both()) and right(*both(device="cpu"))
for op in range(2):
    try:
        if op:
            numba_gradops.fractional_avg_pool_grad(
                [1, 1, 1, 1], np.ones((1, 1, 1, 1)), [0, 1], [0, 1], device="cuda")
        else:
            both(device="cuda")
    except RuntimeError as error:
        import re
        assert re.search({named!r}, str(error)), error
    else:
        raise AssertionError("device='cuda' fell back to the CPU")
"""
    process = python(hide + CALLS + code, "-W", "error", env=NO_DRIVER)
    assert_succeeds(process)
    assert process.stdout + process.stderr == ""


@pytest.mark.alone
def test_n11_import_takes_little_on_top_of_numba() -> None:
    code = """
    import time
    import numba
    start = time.perf_counter()
    import numba_gradops
    print(time.perf_counter() - start)
    """
    runs = [python(code) for _ in range(3)]
    for run in runs:
        assert_succeeds(run)
    assert min(float(run.stdout) for run in runs) < 0.3


def test_n11_import_compiles_nothing(tmp_path: Path) -> None:
    code = COUNT_COMPILATIONS + "import numba_gradops; assert not recorder.buffer"
    assert_succeeds(python(code, env={"NUMBA_CACHE_DIR": str(tmp_path)}))
    assert not list(tmp_path.iterdir())


def test_n11_nothing_is_left_to_compile_after_the_warm_up(tmp_path: Path) -> None:
    code = """
numba_gradops.warmup(dtypes=["float32"])
assert recorder.buffer
recorder.buffer.clear()
assert right(*both(4)) and right(*both(256))
assert not recorder.buffer, recorder.buffer
"""
    process = python(COUNT_COMPILATIONS + CALLS + code, env={"NUMBA_CACHE_DIR": str(tmp_path)})
    assert_succeeds(process)


@pytest.mark.gpu
def test_n13_small_calls_on_a_gpu_give_no_warning() -> None:
    code = """
try:
    results = both(device="cuda")
except RuntimeError as missing:
    if "not available" not in str(missing):
        raise
    print(missing)
else:
    assert right(*results)
"""
    process = python(CALLS + code, "-W", "error")
    assert_succeeds(process)
    if process.stdout:
        pytest.skip(f"needs an NVIDIA GPU: {process.stdout.strip()}")
