"""Compiled code on disk: found again, never stale, and no trouble when the disk is."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from numba.core import caching
from processes import run_plain

import numba_gradops
from numba_gradops import _cache
from numba_gradops.cpu import _fractional_pool_loops

# Calls one small pooling, checks its result, and names the loops that had to be compiled.
CALL = """
import numpy as np
import numba_gradops
from numba.core import event
seen = []
class Listener(event.Listener):
    def on_start(self, happening):
        seen.append(happening.data["dispatcher"].py_func.__name__)
    def on_end(self, happening):
        pass
with event.install_listener("numba:compile", Listener()):
    gradient = np.full((1, 1, 2, 1), 6.0, np.float32)
    result = numba_gradops.fractional_avg_pool_grad([1, 1, 5, 1], gradient, [0, 1], [0, 2, 5])
assert result.ravel().tolist() == [3, 3, 2, 2, 2], result
print(" ".join(seen))
"""


def compiled(directory: object, **env: str | None) -> bool:
    """Call in a new process; tell whether it had to compile."""
    return "gather" in run_plain(CALL, NUMBA_CACHE_DIR=str(directory), **env).stdout.split()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fill a cache; tests work on copies of it."""
    directory = tmp_path_factory.mktemp("cache")
    assert compiled(directory)
    return directory


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def test_a_second_process_compiles_nothing(cache):
    assert [path.suffix for path in sorted(cache.rglob("*.nb*"))] == [".nbc", ".nbi"]
    assert not compiled(cache)


def test_the_cache_can_be_turned_off(cache):
    assert compiled(cache, NUMBA_GRADOPS_CACHE="0")


@pytest.mark.parametrize(
    "setting", ["NUMBA_BOUNDSCHECK=1", "NUMBA_CPU_NAME=generic", "NUMBA_OPT=2"]
)
def test_settings_that_change_the_code_have_their_own_entries(cache, setting):
    name, value = setting.split("=")
    assert compiled(cache, **{name: value})
    assert not compiled(cache, **{name: value})
    assert not compiled(cache)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("_geometry.py", "return tap, cell, min(by_window, by_cells)", "return 0, 0, 0"),
        ("cpu/_exact_loops.py", "total[i] += partial[i]", "total[i] += 0"),
    ],
)
def test_an_edit_of_any_file_makes_old_code_unreachable(tmp_path, file, before, after):
    """Numba's own cache would serve the old code: the helper is in another file than the loop."""
    package = tmp_path / "copy" / "numba_gradops"
    shutil.copytree(Path(numba_gradops.__file__).parent, package)
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(package.parent)}
    code = (
        "import numba_gradops as g, numpy as np; w = np.ones((1, 1, 9, 1), np.float32);"
        "x = np.full((1, 1, 1, 1), 6, np.float32); print(g.__file__, g.conv2d_backprop_input("
        "[1, 1, 1, 9], w, x, [1, 1, 1, 1], 'SAME')[0, 0, 0, 0])"
    )
    first = run_plain(code, cwd=tmp_path, **env).stdout
    assert first.startswith(str(package))
    assert first.endswith(" 6.0\n")
    source = (package / file).read_text()
    assert before in source
    (package / file).write_text(source.replace(before, after))
    assert run_plain(code, cwd=tmp_path, **env).stdout.endswith(" 0.0\n")


@pytest.mark.parametrize("suffix", [".nbc", ".nbi"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "garbage", "gone", "folder"])
def test_damaged_files_cost_a_compilation(cache, suffix, damage):
    (path,) = cache.rglob(f"*{suffix}")
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        middle = len(content) // 2
        path.write_bytes(
            {
                "truncated": content[:middle],
                "flipped": content[:middle]
                + bytes([content[middle] ^ 255])
                + content[middle + 1 :],
                "empty": b"",
                "garbage": b"\x80\x04nonsense",
            }[damage]
        )
    # A flipped byte may be one that does not matter to the index; never to the checksum of data.
    assert compiled(cache) or (suffix, damage) == (".nbi", "flipped")
    if damage != "folder":
        assert not compiled(cache)


@pytest.mark.parametrize("directory", ["a file", "/proc/none", "/dev/null/cache"])
def test_a_directory_that_cannot_be_made_costs_a_compilation(tmp_path, directory):
    if directory == "a file":
        (tmp_path / "file").write_text("")
        directory = str(tmp_path / "file" / "cache")
    assert compiled(directory)


def test_no_home_is_no_trouble():
    unset = {"NUMBA_CACHE_DIR": None, "XDG_CACHE_HOME": None}
    assert "gather" in run_plain(CALL, HOME="/proc/none", **unset).stdout


def test_a_full_disk_is_no_trouble(monkeypatch):
    class Full:
        def save_overload(self, *_):
            raise OSError(28, "No space left on device")

        load_overload = flush = save_overload

    cache = _cache._ForgivingCache(_fractional_pool_loops.gather.py_func)
    monkeypatch.setattr(cache, "_opened", Full())
    assert cache.load_overload(None, None) is None
    cache.save_overload(None, None)


def test_two_processes_may_fill_the_cache_at_once(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: compiled(tmp_path), range(2)))
    assert not compiled(tmp_path)


def test_the_private_names_of_numba_that_the_cache_needs_are_there():
    """Fails when Numba changes what the cache is built on; _cache.py is the place to adapt."""
    for cls, names in {
        caching._CacheLocator: ["ensure_cache_path", "get_cache_path", "get_source_stamp"],
        caching.CompileResultCacheImpl: ["get_filename_base", "rebuild", "reduce"],
        caching.IndexDataCacheFile: ["_save_data", "_load_data", "_dump", "_open_for_write"],
        caching.FunctionCache: ["load_overload", "save_overload", "flush"],
    }.items():
        for name in names:
            assert hasattr(cls, name), (cls, name)
    assert isinstance(_fractional_pool_loops.gather._cache, _cache._ForgivingCache)
