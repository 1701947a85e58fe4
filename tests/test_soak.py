"""A short run of soak.py, which has threads call at random."""

import subprocess
import sys
from pathlib import Path


def test_random_calls_from_four_threads_are_right_and_take_no_more_memory():
    soak = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, soak, "12", "float32", "int32", "int64"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "valid and" in done.stdout
