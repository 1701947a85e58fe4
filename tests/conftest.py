"""What every test gets: poisoned result memory and reproducible random numbers; and a device.

GRADOPS_REQUIRE lists what must be there, so that its absence is a failure where it would otherwise
skip tests: ``nvvm`` (NVIDIA's compiler and disassembler), ``gpu``. Long tests are run then, too.
"""

import os
from collections.abc import Callable

import devices
import gpuless
import machine_report
import numpy as np
import pytest
from fake_gpu import driver  # noqa: F401 - a fixture of several files
from hypothesis import HealthCheck, settings
from machine_speed import slowness  # noqa: F401
from poison import poisoned
from workers import (  # noqa: F401 - hooks
    pytest_runtest_protocol,
    pytest_sessionfinish,
    pytest_testnodedown,
)

from numba_gradops import _arrays, _spare

# One fixed sequence of examples, on any machine: a failure can be repeated, a pass means the same
# everywhere. No deadline: the first example of a dtype compiles.
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _poison_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an element that no loop writes show as NaN (or a number nobody expects)."""
    monkeypatch.setattr(_arrays, "_allocate", poisoned)
    take = _spare.take

    def take_poisoned(nbytes: int) -> np.ndarray | None:
        spare = take(nbytes)
        if spare is not None:
            spare.fill(0xFF)  # NaN in every type of floats
        return spare

    monkeypatch.setattr(_spare, "take", take_poisoned)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


NEEDS: dict[str, Callable[[], str | None]] = {
    "nvvm": gpuless.missing,
    "nvdisasm": gpuless.tools_missing,
    "gpu": devices.gpu_missing,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("GRADOPS_REQUIRE", "").split(",")
    required += ["nvdisasm"] if "nvvm" in required else []
    for name, missing in NEEDS.items():
        reason = missing() if item.get_closest_marker(name) else None
        if reason and name in required:
            pytest.fail(f"GRADOPS_REQUIRE asks for {name}, but {reason}", pytrace=False)
        if reason:
            pytest.skip(reason)
    if item.get_closest_marker("thorough") and required == [""]:
        pytest.skip("takes long: run where GRADOPS_REQUIRE=nvvm or gpu is set")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in machine_report.lines():
        terminalreporter.write_line(line)
    reason = devices.gpu_missing()
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if reason in str(r.longrepr)]
    if reason and skipped:
        terminalreporter.write_line(
            f"NOT RUN ON A DEVICE: {len(skipped)} tests ({reason})", yellow=True
        )


@pytest.fixture(
    params=[
        pytest.param("emulator", marks=pytest.mark.nvvm),
        pytest.param("gpu", marks=pytest.mark.gpu),
    ]
)
def device(request: pytest.FixtureRequest) -> devices.Device:
    """Give what runs launches of kernels: the PTX emulator, and a GPU where there is one."""
    return devices.DEVICES[request.param]()
