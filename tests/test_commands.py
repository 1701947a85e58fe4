"""The commands of ``python -m numba_gradops``, run in this process, and show_config."""

import numba
import numpy as np
import pytest

import numba_gradops
from numba_gradops import _demo, _layers, _selftest, show_config, warmup
from numba_gradops.__main__ import main


def test_info_shows_every_section(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for section in ("versions", "cpu", "tiles", "threads", "cache", "cuda"):
        assert f"{section}\n" in printed
    assert f"numba_gradops: {numba_gradops.__version__}" in printed


def test_configuration_as_dicts():
    facts = show_config(mode="dicts")
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["cuda"]["available"] is False
    assert any("CUDA" in problem for problem in facts["cuda"]["problems"])
    assert facts["threads"]["limit"] >= 1


def test_configuration_shows_tiles_and_the_state_of_the_cache(monkeypatch, tmp_path):
    facts = show_config(mode="dicts")
    lanes = facts["tiles"]["vector bytes"] // 4
    assert facts["tiles"]["float32 wide"].endswith(f" pixels x 2 vectors of {lanes}")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "new"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    facts = show_config(mode="dicts")
    assert facts["cache"]["writable"] is True
    assert facts["cache"]["entries"] == 0
    assert not (tmp_path / "new").exists()
    assert facts["threads"]["OMP_WAIT_POLICY"] == "passive"
    (tmp_path / "new").write_text("")
    monkeypatch.setenv("NUMBA_GRADOPS_CACHE", "0")
    facts = show_config(mode="dicts")
    assert (facts["cache"]["writable"], facts["cache"]["on"]) == (False, False)


def test_selftest_passes_on_every_dtype(capsys):
    assert main(["selftest"]) == 0
    assert capsys.readouterr().out.strip() == "82 passed, 0 failed"


def test_selftest_reports_a_wrong_result(capsys, monkeypatch):
    right = _selftest.fractional_avg_pool_grad
    monkeypatch.setattr(_selftest, "fractional_avg_pool_grad", lambda *a, **k: -right(*a, **k))
    assert main(["selftest"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG fractional_avg_pool_grad float32 overlapping" in printed
    assert "70 passed, 12 failed" in printed


@pytest.fixture
def two_layers(monkeypatch):
    layers = (
        _layers.ConvLayer("small", (1, 9, 8, 5), (3, 2), 4, stride=2),
        _layers.PoolLayer("pool", (1, 9, 8, 5), 1.5),
    )
    monkeypatch.setattr(_demo, "DEMO", layers)


@pytest.mark.usefixtures("two_layers")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_demo_checks_and_times_each_layer(capsys, dtype):
    assert main(["demo", "--dtype", dtype]) == 0
    printed = capsys.readouterr().out
    assert "small" in printed
    assert "GFLOP/s" in printed
    assert "GB/s" in printed
    assert "All results are right." in printed


@pytest.mark.usefixtures("two_layers")
def test_demo_reports_a_wrong_result(capsys, monkeypatch):
    right = _demo.conv2d_backprop_input

    def conv2d_backprop_input(**arguments):
        return right(**arguments) * np.float32(1.01)

    monkeypatch.setattr(_demo, "conv2d_backprop_input", conv2d_backprop_input)
    assert main(["demo"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("WRONG") == 2


@pytest.mark.parametrize("layer", _layers.DEMO, ids=lambda layer: layer.name)
def test_layers_of_the_demo_are_legal_calls(layer, rng):
    arguments = layer.arguments(rng, np.float32)
    assert arguments["out_backprop"].dtype == np.float32
    assert arguments["out_backprop"].ndim == 4


@pytest.mark.parametrize("ratio", [1.0, 1.3, 1.44, 1.9, 3.0])
def test_pooling_sequences_are_like_those_of_the_forward_op(rng, ratio):
    sequence = _layers.sequence(50, ratio, rng)
    steps = np.diff(sequence)
    assert (sequence[0], sequence[-1]) == (0, 50)
    assert set(steps) <= {50 // steps.size, 50 // steps.size + 1}


def test_warmup_names_what_it_does(capsys):
    assert main(["warmup", "--dtypes", "float32", "int64"]) == 0
    lines = capsys.readouterr().err.splitlines()
    empty, full = "." * 24, "#" * 24
    assert lines[0] == f"[{empty}] 0/22 conv2d_backprop_input float32, a few products"
    assert lines[-1] == f"[{full}] 22/22 done"


def test_warmup_compiles_loops_and_what_spreads_them():
    from numba_gradops.cpu import _exact_loops, _fractional_pool_loops, _spread

    warmup("float64")
    for module in (_exact_loops, _fractional_pool_loops):
        assert any("float64" in str(signature) for signature in module.gather.signatures)
    assert _spread._spread.signatures


def test_a_device_that_is_not_there_ends_a_command_with_its_reason(capsys):
    assert main(["selftest", "--device", "cuda"]) == 2
    assert "device 'cuda' is not available" in capsys.readouterr().err


def test_no_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "usage: python -m numba_gradops" in capsys.readouterr().err
