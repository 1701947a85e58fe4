"""Calls from the schedulers that people use: joblib, Dask, concurrent.futures, data loaders."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from processes import CALLS

SCRIPTS = {
    "joblib threads": """
import joblib
results = joblib.Parallel(n_jobs=4, prefer="threads")(joblib.delayed(work)(i) for i in range(24))
""",
    "joblib processes": """
import joblib
results = joblib.Parallel(n_jobs=2)(joblib.delayed(work)(i) for i in range(4))
""",
    "dask threads": """
import dask
tasks = [dask.delayed(work)(i) for i in range(24)]
results = dask.compute(*tasks, scheduler="threads", num_workers=4)
""",
    "dask processes": """
import dask
tasks = [dask.delayed(work)(i) for i in range(4)]
results = dask.compute(*tasks, scheduler="processes", num_workers=2)
""",
    "concurrent.futures threads": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    results = list(pool.map(work, range(24)))
""",
    "concurrent.futures processes": """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2) as pool:
    results = list(pool.map(work, range(4)))
""",
    "torch workers": """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return work(index)
loader = torch.utils.data.DataLoader(
    Data(), batch_size=None, num_workers=2, multiprocessing_context="fork")
results = list(loader)
""",
}


@pytest.mark.parametrize("scheduler", SCRIPTS)
def test_workers_of_a_scheduler_compute_and_so_does_their_parent(scheduler, tmp_path: Path):
    """A script, because new processes import it again; the parent has used its threads before."""
    package = scheduler.split()[0]
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    script = tmp_path / "script.py"
    body = "\n    ".join(SCRIPTS[scheduler].strip().splitlines())
    script.write_text(
        f"""{CALLS}
import warnings
warnings.simplefilter("ignore")  # Python 3.12 warns of any fork beside threads
def work(_):
    return both()
if __name__ == "__main__":
    expected = both()
    {body}
    assert len(results) > 3 and all(result == expected for result in results)
    assert both() == expected
"""
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
