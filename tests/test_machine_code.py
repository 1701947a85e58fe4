"""The machine code of the register tile that convolutions spend their time in."""

import json
import platform

import pytest
from processes import run_plain

CODE = """
import json, re
from llvmlite import ir
from numba import njit, types
from numba_gradops.cpu import _microkernel, _tiled_loops, _vectors

report = {"width": _vectors.vectors().width}
for name, element, size in (("ss", ir.FloatType(), 4), ("sd", ir.DoubleType(), 8)):
    tile = _tiled_loops.tile_of(_tiled_loops.Wide, size)
    kernel = _microkernel.channels(element, tile)

    @njit(nogil=True)
    def use(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):
        kernel(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)

    use.compile((types.intp,) * 16)
    (text,) = use.inspect_asm().values()
    blocks = re.split(r"^[.\\w$]+:.*$", text, flags=re.M)
    products = "vfmadd|vmulp|mulp"
    inner = max(blocks, key=lambda block: len(re.findall(products, block))).splitlines()
    report[name] = {
        "sums": tile.pixels * tile.vectors,
        "fused": sum("vfmadd" in line for line in inner),
        "products": sum(bool(re.search(products, line)) for line in inner),
        "widths": sorted({w for line in inner if re.search(products + "|vfmadd", line)
                          for w in re.findall(r"%([xyz]mm)", line)}),
        "spills": [line for line in inner if "mm" in line and re.search(r"\\(%r[sb]p\\)", line)],
    }
print(json.dumps(report))
"""

HASWELL = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+sse4.2"


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="reads x86 assembly")
@pytest.mark.parametrize(
    ("processor", "features", "width"),
    [(None, None, None), ("haswell", HASWELL, 32), ("generic", "", 16)],
)
def test_the_inner_loop_multiplies_whole_vectors_and_spills_none(processor, features, width):
    env = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": features}
    done = run_plain(CODE, **env)
    report = json.loads(done.stdout)
    assert width in {None, report["width"]}
    register = {16: "xmm", 32: "ymm", 64: "zmm"}[report["width"]]
    for kind in ("ss", "sd"):
        found = report[kind]
        assert found["spills"] == []
        assert found["widths"] == [register]
        # Every step of the unrolled loop multiplies for each sum, and for nothing else.
        assert found["products"] >= found["sums"]
        assert found["products"] % found["sums"] == 0
        if report["width"] > 16:
            assert found["fused"] == found["products"]
