"""The layer classes and the float64 reference of this checkout, whatever version is measured.

Old versions are measured by the benchmarks of today. What those are made from and checked against
must not change with the version, so these two files, which need only NumPy, are loaded from here
and not from the package that is installed.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).parents[2] / "numba_gradops"


def _load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"{__package__}.{name}", _PACKAGE / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


layers = _load("_layers")
reference = _load("_reference")
