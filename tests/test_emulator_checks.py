"""The PTX emulator of the tests notices each fault that it promises to notice."""

from __future__ import annotations

import numpy as np
import ptx
import pytest
from ptx import Buffer

HEADER = """
.version 8.0
.target sm_80
.address_size 64
"""


def kernel(body: str, parameters: str = "input output", shared: int = 0, local: int = 0) -> str:
    """Make PTX text with 64-bit parameters; %rd0 is the input's address, and so on."""
    names = parameters.split()
    loads = "".join(f"ld.param.u64 %rd{i}, [{name}];\n" for i, name in enumerate(names))
    return (
        HEADER
        + (f".shared .align 16 .b8 tile[{shared}];\n" if shared else "")
        + ".visible .entry kernel("
        + ", ".join(f".param .u64 {name}" for name in names)
        + ")\n{\n.reg .pred %p<9>;\n.reg .b16 %rs<9>;\n.reg .b32 %r<19>;\n.reg .b64 %rd<19>;\n"
        + ".reg .f32 %f<19>;\n.reg .f64 %fd<9>;\n"
        + (f".local .align 16 .b8 stack[{local}];\n" if local else "")
        + loads
        + "mov.u32 %r0, %tid.x;\n"
        + body
        + "\nret;\n}\n"
    )


# Copies element tid of the input to the output, through the address in %rd8 and %rd9.
COPY = """
mul.wide.s32 %rd5, %r0, 4;
add.s64 %rd8, %rd0, %rd5;
add.s64 %rd9, %rd1, %rd5;
ld.global.f32 %f0, [%rd8];
st.global.f32 [%rd9], %f0;
"""


def arrays(count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(64, dtype=np.float32), np.full(count, np.nan, np.float32)


def run(
    body: str, *, threads: int = 32, grid: int = 1, count: int = 64, **layout: int
) -> np.ndarray:
    source, result = arrays(count)
    program = ptx.parse(kernel(body, **layout))
    ptx.launch(program, grid, threads, [Buffer(source), Buffer(result, "w")])
    return result


def test_a_correct_copy_passes_and_leaves_the_rest() -> None:
    result = run(COPY)
    np.testing.assert_array_equal(result[:32], np.arange(32))
    assert np.isnan(result[32:]).all()


@pytest.mark.parametrize("address", [0, 16])  # modulo 256, of which the emulator keeps track
@pytest.mark.parametrize(("step", "byte"), [(-4, -4), (132, 256)])
def test_reading_beside_an_array_is_noticed(address: int, step: int, byte: int) -> None:
    room = np.zeros(1024, np.uint8)
    source = room[(address - room.ctypes.data) % 256 :][:256].view(np.float32)
    program = ptx.parse(
        kernel(COPY.replace("ld.global", f"add.s64 %rd8, %rd8, {step};\nld.global"))
    )
    result = Buffer(np.zeros(64, np.float32), "w")
    with pytest.raises(ptx.OutOfBoundsError, match=f"4 bytes at byte {byte} of array 1"):
        ptx.launch(program, 1, 32, [Buffer(source), result])


def test_writing_past_the_end_is_noticed() -> None:
    with pytest.raises(ptx.OutOfBoundsError, match="of array 2, which has 124; thread 31 and 0"):
        run(COPY, count=31)


def test_an_index_that_would_meet_the_other_array_is_noticed() -> None:
    """On a device the two arrays may well be neighbours, and nothing would be noticed."""
    far = "add.s64 %rd8, %rd8, 512;\nld.global"
    with pytest.raises(ptx.OutOfBoundsError):
        run(COPY.replace("ld.global", far))


def test_an_address_of_no_array_is_noticed() -> None:
    with pytest.raises(ptx.OutOfBoundsError, match="belongs to no array"):
        run(COPY.replace("add.s64 %rd8, %rd0, %rd5", "mov.u64 %rd8, 16"))


@pytest.mark.parametrize(
    "load", ["ld.global.v2.f32 {%f0,%f1}, [%rd8];", "ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%rd8];"]
)
def test_a_misaligned_vector_is_noticed(load: str) -> None:
    with pytest.raises(ptx.MisalignedError, match="bytes at byte 4 of array 1"):
        run(COPY.replace("ld.global.f32 %f0, [%rd8];", load))


def test_alignment_is_that_of_the_array_itself() -> None:
    """A view that begins in the middle of an allocation: vectors do not fit."""
    body = """
    ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%rd0];
    st.global.f32 [%rd1], %f2;
    """
    memory = np.arange(64, dtype=np.float32)
    offset = -(memory.ctypes.data // 4) % 4
    program = ptx.parse(kernel(body))
    result = np.zeros(4, np.float32)
    ptx.launch(program, 1, 1, [Buffer(memory[offset : offset + 4]), Buffer(result, "w")])
    assert result[0] == offset + 2
    with pytest.raises(ptx.MisalignedError):
        ptx.launch(program, 1, 1, [Buffer(memory[offset + 1 : offset + 5]), Buffer(result, "w")])


def test_writing_an_input_is_noticed() -> None:
    with pytest.raises(ptx.ReadOnlyError, match="array 1 is an input"):
        run(COPY.replace("st.global.f32 [%rd9]", "st.global.f32 [%rd8]"))


def test_reading_an_output_before_it_is_written_is_noticed() -> None:
    with pytest.raises(ptx.UninitialisedError, match="output 2"):
        run(COPY.replace("[%rd8]", "[%rd9]"))


def test_an_output_is_not_read_through_the_read_only_cache() -> None:
    source, result = arrays()
    program = ptx.parse(kernel(COPY.replace("ld.global.f32", "ld.global.nc.f32")))
    ptx.launch(program, 1, 32, [Buffer(source), Buffer(result, "w")])
    with pytest.raises(ptx.ReadOnlyError, match=r"read with \.nc"):
        ptx.launch(program, 1, 32, [Buffer(source, "rw"), Buffer(result, "w")])


def test_an_element_written_by_two_threads_is_noticed() -> None:
    with pytest.raises(ptx.RaceError, match="by another one"):
        run(COPY.replace("[%rd9], %f0", "[%rd1], %f0"))


def test_an_element_written_by_two_blocks_is_noticed() -> None:
    with pytest.raises(ptx.RaceError, match="element 0 of array 2 is written by thread"):
        run(COPY, grid=2)


def test_two_arguments_that_share_memory_are_refused() -> None:
    memory = np.zeros(64, np.float32)
    program = ptx.parse(kernel(COPY))
    with pytest.raises(ValueError, match="share memory"):
        ptx.launch(program, 1, 32, [Buffer(memory[:40]), Buffer(memory[32:], "w")])


# Reverses 64 elements through shared memory: two warps, so that order within a warp hides nothing.
REVERSE = """
mul.wide.s32 %rd5, %r0, 4;
add.s64 %rd8, %rd0, %rd5;
ld.global.f32 %f0, [%rd8];
mov.u32 %r1, tile;
shl.b32 %r2, %r0, 2;
add.s32 %r3, %r1, %r2;
st.shared.f32 [%r3], %f0;
bar.sync 0;
sub.s32 %r4, %r1, %r2;
ld.shared.f32 %f1, [%r4+252];
add.s64 %rd9, %rd1, %rd5;
st.global.f32 [%rd9], %f1;
"""


def reverse(body: str = REVERSE, shared: int = 256) -> np.ndarray:
    return run(body, threads=64, shared=shared)


def test_a_correct_exchange_through_shared_memory_passes() -> None:
    np.testing.assert_array_equal(reverse(), np.arange(64)[::-1])


def test_a_missing_barrier_is_noticed() -> None:
    text = kernel(REVERSE, shared=256)
    assert ptx.barriers(text) == 1
    source, result = arrays()
    program = ptx.parse(ptx.without(text, 0))
    with pytest.raises(ptx.RaceError, match="reads shared byte 252, which lane 63 wrote"):
        ptx.launch(program, 1, 64, [Buffer(source), Buffer(result, "w")])


def test_overwriting_what_another_thread_read_is_noticed() -> None:
    again = "\nst.shared.f32 [%r3], %f1;\n"
    with pytest.raises(ptx.RaceError, match=r"writes shared byte .* and there is no barrier"):
        reverse(REVERSE + again)
    assert reverse(REVERSE + "\nbar.sync 0;" + again) is not None
    own = REVERSE.replace("sub.s32 %r4, %r1, %r2", "add.s32 %r4, %r1, %r2").replace("+252", "")
    assert reverse(own + again) is not None  # its own element: no race


def test_two_writes_at_once_are_noticed() -> None:
    with pytest.raises(ptx.RaceError, match="at once"):
        reverse(REVERSE.replace("add.s32 %r3, %r1, %r2", "mov.u32 %r3, %r1"))


def test_two_writes_one_after_another_are_noticed() -> None:
    with pytest.raises(ptx.RaceError, match="which lane"):
        reverse(
            REVERSE.replace("bar.sync 0;", "sub.s32 %r5, %r1, %r2;\nst.shared.f32 [%r5+252], %f0;")
        )


def test_halves_of_a_word_are_different_memory() -> None:
    """No race between two threads that write halves of one word; one where a word is read."""
    body = """
    mov.u32 %r1, tile;
    shl.b32 %r2, %r0, 1;
    add.s32 %r3, %r1, %r2;
    cvt.u16.u32 %rs0, %r0;
    st.shared.u16 [%r3], %rs0;
    """
    assert run(body, threads=64, shared=128) is not None
    with pytest.raises(ptx.RaceError):
        run(body + "and.b32 %r4, %r3, -4;\nld.shared.u32 %r5, [%r4];", threads=64, shared=128)


def test_reading_uninitialised_shared_memory_is_noticed() -> None:
    with pytest.raises(ptx.UninitialisedError, match="shared byte 252 are read by lane 0"):
        reverse(REVERSE.replace("st.shared.f32 [%r3], %f0;", ""))
    with pytest.raises(ptx.UninitialisedError):  # one of the four elements
        reverse(
            REVERSE.replace("[%r4+252];", "[%r1];\nld.shared.v4.f32 {%f2,%f3,%f4,%f5}, [%r1+240];")
            .replace("add.s32 %r3, %r1, %r2;", "add.s32 %r3, %r1, %r2;\nsetp.lt.s32 %p0, %r0, 63;")
            .replace("st.shared", "@%p0 st.shared")
        )


def test_every_block_begins_with_uninitialised_shared_memory() -> None:
    """Blocks that follow on the same emulated memory must not see what was left there."""
    first_only = """
    mov.u32 %r1, %ctaid.x;
    setp.ne.s32 %p0, %r1, 0;
    mov.u32 %r2, tile;
    @%p0 bra READ;
    st.shared.u32 [%r2], %r0;
    READ:
    ld.shared.u32 %r3, [%r2];
    """
    assert run(first_only, threads=1, shared=16) is not None
    with pytest.raises(ptx.UninitialisedError):
        run(first_only, threads=1, grid=200, shared=16)


@pytest.mark.parametrize(("place", "byte"), [("+256", 256), ("-4", -4)])
def test_shared_memory_has_bounds(place: str, byte: int) -> None:
    with pytest.raises(ptx.OutOfBoundsError, match=f"shared byte {byte} of 256"):
        reverse(REVERSE.replace("[%r4+252]", f"[%r1{'+' + place.lstrip('+')}]"))


def test_shared_memory_has_alignment() -> None:
    with pytest.raises(ptx.MisalignedError, match="16 bytes at shared byte 4"):
        reverse(
            REVERSE.replace(
                "ld.shared.f32 %f1, [%r4+252];", "ld.shared.v4.f32 {%f1,%f2,%f3,%f4}, [%r1+4];"
            )
        )


def test_dynamic_shared_memory_lies_behind_the_static_one() -> None:
    text = kernel(REVERSE.replace("mov.u32 %r1, tile", "mov.u32 %r1, extra"), shared=256)
    text = text.replace(
        ".visible .entry", ".extern .shared .align 16 .b8 extra[];\n.visible .entry"
    )
    source, result = arrays()
    arguments = [Buffer(source), Buffer(result, "w")]
    program = ptx.parse(text)
    ptx.launch(program, 1, 64, arguments, dynamic_shared=256)
    np.testing.assert_array_equal(result, source[::-1])
    with pytest.raises(ptx.OutOfBoundsError, match="of 496"):
        ptx.launch(program, 1, 64, arguments, dynamic_shared=240)


def test_local_memory_has_bounds() -> None:
    body = """
    mov.u64 %rd5, stack;
    st.local.u32 [%rd5+12], %r0;
    ld.local.u32 %r1, [%rd5+12];
    """
    assert run(body, local=16) is not None
    with pytest.raises(ptx.OutOfBoundsError, match="local byte 16 of 16"):
        run(body.replace("+12", "+16"), local=16)


def test_generic_addresses_find_their_memory() -> None:
    body = """
    mov.u64 %rd5, tile;
    cvta.shared.u64 %rd6, %rd5;
    mul.wide.s32 %rd7, %r0, 4;
    add.s64 %rd8, %rd6, %rd7;
    cvt.rn.f32.s32 %f0, %r0;
    st.f32 [%rd8], %f0;
    setp.lt.s32 %p0, %r0, 16;
    selp.b64 %rd9, %rd0, %rd6, %p0;
    add.s64 %rd9, %rd9, %rd7;
    ld.f32 %f1, [%rd9];
    add.f32 %f1, %f1, %f0;
    add.s64 %rd10, %rd1, %rd7;
    st.global.f32 [%rd10], %f1;
    """
    np.testing.assert_array_equal(run(body, shared=128)[:32], 2 * np.arange(32))
    with pytest.raises(ptx.OutOfBoundsError, match="belongs to no memory"):
        run(body.replace("selp.b64 %rd9, %rd0", "selp.b64 %rd9, 64"), shared=128)


@pytest.mark.parametrize("bound", [16, 32, 40])
def test_a_barrier_that_not_all_threads_reach_is_noticed(bound: int) -> None:
    """Also where whole warps go around it; the others wait at another barrier, or have ended."""
    skip = f"setp.ge.s32 %p0, %r0, {bound};\n@%p0 bra AFTER;\nbar.sync 0;\nAFTER:\n"
    with pytest.raises(ptx.DivergentBarrierError, match=f"{bound} of the 64 threads"):
        run(skip, threads=64)
    with pytest.raises(ptx.DivergentBarrierError):
        run(skip + "bar.sync 0;", threads=64)
    assert run(skip.replace(f"{bound};", "64;", 1), threads=64) is not None


def test_threads_that_took_two_ways_meet_at_a_barrier() -> None:
    body = """
    setp.lt.s32 %p0, %r0, 7;
    mov.f32 %f0, 0f3F800000;
    @%p0 bra JOIN;
    mov.f32 %f0, 0f40000000;
    JOIN:
    bar.sync 0;
    mul.wide.s32 %rd5, %r0, 4;
    add.s64 %rd9, %rd1, %rd5;
    st.global.f32 [%rd9], %f0;
    """
    result = run(body, threads=40)
    np.testing.assert_array_equal(result[:40], np.where(np.arange(40) < 7, 1, 2))


def test_each_thread_leaves_a_loop_by_itself() -> None:
    body = """
    mov.u32 %r1, 0;
    mov.f32 %f0, 0f00000000;
    LOOP:
    setp.ge.s32 %p0, %r1, %r0;
    @%p0 bra DONE;
    add.f32 %f0, %f0, 0f3F800000;
    add.s32 %r1, %r1, 1;
    bra.uni LOOP;
    DONE:
    mul.wide.s32 %rd5, %r0, 4;
    add.s64 %rd9, %rd1, %rd5;
    st.global.f32 [%rd9], %f0;
    """
    np.testing.assert_array_equal(run(body, threads=40)[:40], np.arange(40))


def test_an_endless_loop_ends() -> None:
    program = ptx.parse(kernel("LOOP:\nbra LOOP;"))
    source, result = arrays()
    with pytest.raises(ptx.EndlessLoopError):
        ptx.launch(program, 1, 1, [Buffer(source), Buffer(result)], most_steps=1000)


def test_division_by_zero_is_noticed_only_where_it_happens() -> None:
    body = "setp.gt.s32 %p0, %r0, 0;\n@%p0 rem.u32 %r1, 7, %r0;"
    assert run(body) is not None
    with pytest.raises(ptx.EmulationError, match="divided by zero"):
        run(body.replace("@%p0 ", ""))


@pytest.mark.parametrize(
    "line",
    [
        "add.ftz.f32 %f0, %f0, %f1;",
        "add.sat.s32 %r1, %r1, %r1;",
        "fma.rz.f32 %f0, %f0, %f0, %f0;",
        "div.approx.f32 %f0, %f0, %f1;",
        "cvt.rz.f32.f64 %f0, %fd0;",
        "mul24.lo.s32 %r1, %r1, %r1;",
        "atom.global.add.f32 %f0, [%rd0], %f1;",
        "shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;",
        "bar.sync 1;",
        "bar.warp.sync -1;",
        "ld.volatile.global.f32 %f0, [%rd0];",
        "ld.global.v8.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%rd0];",
        "ld.global.v2.f32 {%f0,%f1,%f2}, [%rd0];",
        "st.global.nc.f32 [%rd0], %f0;",
        "call.uni (retval0), helper, (param0);",
        "bra NOWHERE;",
        "add.f32 %f0, %f0, %unknown;",
        "add.s64 %rd5, %rd5, %r0;",
    ],
)
def test_what_is_not_modelled_is_an_error_even_if_never_reached(line: str) -> None:
    with pytest.raises(ptx.UnknownInstructionError):
        run("bra END;\n" + line + "\nEND:\n")


@pytest.mark.parametrize("outside", [".func helper() { ret; }", ".tex .u64 image;"])
def test_unknown_declarations_are_an_error(outside: str) -> None:
    with pytest.raises(ptx.UnknownInstructionError):
        ptx.parse(kernel(COPY).replace(".visible .entry", outside + "\n.visible .entry"))


def test_scopes_of_inline_assembly_are_read() -> None:
    body = COPY.replace(
        "ld.global.f32 %f0, [%rd8];",
        "// begin inline asm\n{ .reg .f32 %t; ld.global.f32 %t, [%rd8]; mov.f32 %f0, %t; }\n// end",
    )
    np.testing.assert_array_equal(run(body)[:32], np.arange(32))


def test_arguments_must_fit_the_parameters() -> None:
    source, result = arrays()
    program = ptx.parse(kernel(COPY))
    with pytest.raises(ValueError, match="has 2 parameters, got 1"):
        ptx.launch(program, 1, 32, [Buffer(source)])
    with pytest.raises(ValueError, match="a parameter of 8 bytes was given"):
        ptx.launch(program, 1, 32, [Buffer(source), np.int32(0)])
    for grid, block in (((1, 70000), 32), (0, 32), (1, 1025), (1, 0)):
        with pytest.raises(ValueError, match=r"cannot be launched|1 to 1024 threads"):
            ptx.launch(program, grid, block, [Buffer(source), Buffer(result, "w")])


def test_some_blocks_of_a_huge_grid_can_be_run() -> None:
    """Nothing but the touched pages of a huge array takes memory."""
    body = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mul.wide.u32 %rd5, %r1, %r2;
    cvt.u64.u32 %rd6, %r0;
    add.s64 %rd5, %rd5, %rd6;
    shl.b64 %rd5, %rd5, 1;
    add.s64 %rd9, %rd1, %rd5;
    cvt.u16.u32 %rs0, %r0;
    st.global.u16 [%rd9], %rs0;
    """
    result = np.zeros(2**31 + 64, np.uint16)
    program = ptx.parse(kernel(body))
    last = result.size // 64 - 1
    source = np.zeros(1, np.float32)
    ptx.launch(
        program, last + 1, 64, [Buffer(source), Buffer(result, "rw")], blocks=range(last, last + 1)
    )
    np.testing.assert_array_equal(result[-64:], np.arange(64))


def test_counters_show_coalescing_and_bank_conflicts() -> None:
    memory = np.zeros(1024, np.float32)
    start = -(memory.ctypes.data // 4) % 64  # 256 bytes, as device memory is aligned
    source, result = memory[start : start + 64], memory[start + 64 : start + 128]
    arguments = [Buffer(source), Buffer(result, "w")]
    good = ptx.launch(ptx.parse(kernel(REVERSE, shared=256)), 1, 64, arguments, profile=True)
    assert (good.requests, good.sectors) == (4, 16)
    assert good.wavefronts == good.ideal == {"load": 2, "store": 2}
    assert good.instructions["ld.global.f32"] == 2
    strided = REVERSE.replace("shl.b32 %r2, %r0, 2", "shl.b32 %r2, %r0, 4")
    strided = strided.replace("%r4+252", "%r4+1008")
    bad = ptx.launch(ptx.parse(kernel(strided, shared=1024)), 1, 64, arguments, profile=True)
    assert bad.wavefronts["load"] == 4 * bad.ideal["load"]


def test_products_that_may_be_fused_are_listed() -> None:
    body = """
    mul.f32 %f1, %f0, %f0;
    add.f32 %f2, %f1, %f0;
    mul.rn.f32 %f3, %f0, %f0;
    add.f32 %f4, %f3, %f0;
    """
    assert ptx.fusible(ptx.parse(kernel(body))) == ["add.f32 %f2, %f1, %f0"]
