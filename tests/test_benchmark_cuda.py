"""The comparison on a GPU can be run to its end: here with everything but the device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no benchmarks beside the tests")


def dry_run(*options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "peers.py", "--device", "cuda", "--dry-run", "--rounds", "1"]
    return subprocess.run(
        [*command, *options],
        cwd=FOLDER,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *sys.path])},
        capture_output=True,
        text=True,
        check=check,
    )


def test_all_layers_are_checked_and_timed_beside_predictions(tmp_path: Path) -> None:
    done = dry_run("--json", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["entries"]) == 20
    for entry, line in zip(found["entries"], done.stdout.splitlines()[1:], strict=True):
        slow, fast = entry["predicted"]
        assert 20e-6 < fast < slow < 30e-3, "the predictions are for the whole layer"
        assert all(seconds > 0 for times in entry["seconds"].values() for seconds in times)
        assert {"ours"} <= set(entry["seconds"]) <= {"ours", "reference"}
        assert line.startswith(entry["layer"])
        assert "predicted" in line
    assert found["limits"].keys() == {"operations", "bytes"}


@pytest.mark.parametrize("options", [["--dtype", "float16"], ["--data-format", "NCHW"]])
def test_other_dtypes_and_layouts(options: list[str]) -> None:
    done = dry_run("--only", "down 3x3/2", "pool 111x33", *options)
    assert len(done.stdout.splitlines()) == 3


def test_no_layer_begins_after_the_time_is_over() -> None:
    done = dry_run("--seconds", "0")
    assert "no time was left for: pool 224x64" in done.stderr


def test_a_wrong_result_ends_the_comparison_before_it_is_timed() -> None:
    code = (
        "import runpy, sys, numba_gradops as n; right = n.conv2d_backprop_input;"
        "n.conv2d_backprop_input = lambda **a: right(**a) * 1.01;"
        "sys.argv = 'peers.py --device cuda --dry-run --rounds 1 --only'.split() + ['resnet 14'];"
        "sys.path.insert(0, '.'); runpy.run_path('peers.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FOLDER,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "resnet 14: reference and numba_gradops differ by 0.0" in done.stderr
    assert "us" not in done.stdout
