"""Which accesses ptxas fused: expected groups are read off the machine code by hand."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from engine import ptx_of

from helpers.fusion import Fusion, Group, fuse
from helpers.kernels import KERNELS, tiled
from helpers.sass import disassemble
from helpers.simt import ptx

ARCHITECTURES = ("sm_80", "sm_90")

SOURCE = r"""
#define KERNEL extern "C" __global__ void
#define FILL(s) (s)[threadIdx.x] = o[threadIdx.x]; __syncthreads()

KERNEL row(float *o, int n) {                // rows of 32 floats: each starts at a multiple of 16
    __shared__ float s[32][32];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    float d = 0;
    #pragma unroll
    for (int k = 0; k < 32; k++) d = d * 3 + s[threadIdx.y][k];
    o[threadIdx.x] = d;
}
KERNEL padded_row(float *o, int n) {         // rows of 33: most start at a multiple of 4 only
    __shared__ float s[32][33];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    float d = 0;
    #pragma unroll
    for (int k = 0; k < 32; k++) d = d * 3 + s[threadIdx.y][k];
    o[threadIdx.x] = d;
}
KERNEL volatile_row(float *o, int n) {
    __shared__ volatile float s[32][32];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    float d = 0;
    #pragma unroll
    for (int k = 0; k < 32; k++) d = d * 3 + s[threadIdx.y][k];
    o[threadIdx.x] = d;
}
KERNEL integer_row(int *o, int n) {
    __shared__ int s[32][32];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    int d = 0;
    #pragma unroll
    for (int k = 0; k < 32; k++) d = d * 3 + s[threadIdx.y][k];
    o[threadIdx.x] = d;
}
KERNEL double_row(double *o, int n) {
    __shared__ double s[16][16];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    double d = 0;
    #pragma unroll
    for (int k = 0; k < 16; k++) d = d * 3 + s[threadIdx.y][k];
    o[threadIdx.x] = d;
}
KERNEL two_arrays(float *o, int n) {
    __shared__ float s[32][32], t[32][32];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; t[threadIdx.x][threadIdx.y] = o[n];
    __syncthreads();
    float d = 0;
    #pragma unroll
    for (int k = 0; k < 32; k++) d += s[threadIdx.y][k] * t[threadIdx.x][k];
    o[threadIdx.x] = d;
}
KERNEL rolled(float *o, int n) {
    __shared__ float s[32][32];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    float d = 0;
    #pragma unroll 1
    for (int k = 0; k < 32; k++) d = d * 3 + s[threadIdx.y][k];
    o[threadIdx.x] = d;
}
KERNEL unknown_trips(float *o, int n) {      // nvcc unrolls by 4, ptxas those again
    __shared__ float s[32][32];
    s[threadIdx.x][threadIdx.y] = o[threadIdx.x]; __syncthreads();
    float d = 0;
    for (int k = 0; k < n; k++) d += s[threadIdx.y][k] * s[k][threadIdx.x];
    o[threadIdx.x] = d;
}
KERNEL register_tile(float *o, int n) {      // four values of each, in a loop
    __shared__ float s[16][64];
    for (int i = 0; i < 4; i++) s[threadIdx.y][threadIdx.x + 16 * i] = o[i]; __syncthreads();
    float c[4][4] = {};
    #pragma unroll
    for (int k = 0; k < 16; k++)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                c[i][j] += s[k][threadIdx.y * 4 + i] * s[k][threadIdx.x * 4 + j];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) o[(threadIdx.y * 4 + i) * n + threadIdx.x * 4 + j] = c[i][j];
}
KERNEL float2s(float2 *o, int n) {
    __shared__ float2 s[1024]; FILL(s);
    float2 a = s[threadIdx.x * 2], b = s[threadIdx.x + n];
    o[threadIdx.x] = make_float2(a.x + b.y, a.y * b.x);
}
KERNEL float4s(float4 *o, int n) {
    __shared__ float4 s[1024]; FILL(s);
    float4 a = s[threadIdx.x + 1], b = s[threadIdx.x + n];
    o[threadIdx.x] = make_float4(a.x + b.w, a.y * b.z, a.z - b.y, a.w);
}
KERNEL stores(float *o, int n) {
    __shared__ float s[1024];
    float v = o[threadIdx.x], *p = s + threadIdx.x * 4;
    p[0] = v; p[1] = v + 1; p[2] = v + 2; p[3] = v + 3; __syncthreads();
    o[threadIdx.x] = s[n];
}
KERNEL three_of_four(float *o, int n) {      // one wide load, of which a quarter is not used
    __shared__ float s[1024]; FILL(s);
    float *p = s + threadIdx.x * 4;
    o[threadIdx.x] = (p[1] * 2 + p[2]) * 2 + p[3];
}
KERNEL across(float *o, int n) {             // no 8 aligned bytes hold both
    __shared__ __align__(16) float s[1024]; FILL(s);
    float *p = s + threadIdx.x * 4;
    o[threadIdx.x] = p[1] * 2 + p[2];
}
KERNEL any_start(float *o, int n) {
    __shared__ float s[1024]; FILL(s);
    float *p = s + threadIdx.x * n;
    o[threadIdx.x] = ((p[0] * 2 + p[1]) * 2 + p[2]) * 2 + p[3];
}
KERNEL barrier_between(float *o, int n) {
    __shared__ float s[1024]; FILL(s);
    float *p = s + threadIdx.x * 4;
    float d = p[0] * 2 + p[1];
    __syncthreads();
    o[threadIdx.x] = (d * 2 + p[2]) * 2 + p[3];
}
KERNEL fixed_places(float *o, int n) {
    __shared__ float s[8]; __shared__ float t[8];
    if (threadIdx.x < 8) { s[threadIdx.x] = o[threadIdx.x]; t[threadIdx.x] = 1; } __syncthreads();
    o[threadIdx.x] = s[0] + s[1] * 2 + s[2] * 3 + t[0] + s[3] + t[1] + s[7];
}
KERNEL reduction(float *o, int n) {          // each step is one predicated load more
    __shared__ float s[1024]; FILL(s);
    for (int w = 4; w > 0; w /= 2) {
        if (threadIdx.x < w) s[threadIdx.x] += s[threadIdx.x + w];
        __syncthreads();
    }
    if (threadIdx.x == 0) o[0] = s[0];
}
KERNEL global_row(float *o, const float *__restrict__ q, int n) {
    const float *p = q + threadIdx.x * 4;
    o[threadIdx.x] = p[0] * 3 + p[1] * 5 + p[2] * 7 + p[3];
}
KERNEL local_array(float *o, int n) {
    float a[16];
    #pragma unroll 1
    for (int i = 0; i < 16; i++) a[i] = o[i * n];
    float d = 0;
    #pragma unroll 1
    for (int i = 0; i < n; i++) d += a[i * 3 & 15];
    o[threadIdx.x] = d;
}
KERNEL generic(float *o, int n) {
    __shared__ __align__(16) float s[1024]; FILL(s);
    float *p = n ? s + threadIdx.x * 4 : o + threadIdx.x * 4;
    o[threadIdx.x] = p[0] * 3 + p[1] * 5;
}
KERNEL ends_early(const float *a, float *o, int n) {
    __shared__ float s[256];
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i >= n) return;
    s[threadIdx.x] = a[i]; __syncwarp();
    float d = 0;
    for (int k = 0; k < 32; k++) d += s[(threadIdx.x & ~31) + k];
    o[i] = d;
}
KERNEL neighbours(float *o, int n) {         // s[k + 1] is the next round's s[k]
    __shared__ float s[1024]; FILL(s);
    float d = 0;
    for (int k = 0; k < n; k++) d = d * 3 + s[k] + s[k + 1];
    o[threadIdx.x] = d;
}
KERNEL read_ahead(float *o, int n) {         // one wide load makes both, whatever n is
    __shared__ __align__(16) float s[1024]; FILL(s);
    float *p = s + threadIdx.x * 4, d = p[0];
    if (n > 3) d = d * 2 + p[1];
    o[threadIdx.x] = d;
}
"""

#: What is expected: kernel -> {(machine opcode, members of a group, copies): groups}.
EXPECTED = {
    "row": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS.128", 4, 1): 8, ("STG.E", 1, 1): 1},
    "padded_row": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS", 1, 1): 32, ("STG.E", 1, 1): 1},
    "volatile_row": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS", 1, 1): 32, ("STG.E", 1, 1): 1},
    "integer_row": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS.128", 4, 1): 8, ("STG.E", 1, 1): 1},
    "double_row": {
        ("LDG.E.64", 1, 1): 1,
        ("STS.64", 1, 1): 1,
        ("LDS.128", 2, 1): 8,
        ("STG.E.64", 1, 1): 1,
    },
    "two_arrays": {("LDG.E", 1, 1): 2, ("STS", 1, 1): 2, ("LDS.128", 4, 1): 16, ("STG.E", 1, 1): 1},
    "rolled": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS", 1, 1): 1, ("STG.E", 1, 1): 1},
    "unknown_trips": {
        ("LDG.E", 1, 1): 1,
        ("STS", 1, 1): 1,
        ("LDS.64", 2, 7): 2,
        ("LDS", 1, 7): 4,
        ("LDS", 1, 1): 2,
        ("STG.E", 1, 1): 1,
    },
    "register_tile": {
        ("LDG.E", 1, 1): 4,
        ("STS", 1, 1): 4,
        ("LDS.128", 4, 1): 32,
        ("STG.E", 1, 1): 16,
    },
    "float2s": {
        ("LDG.E.64", 1, 1): 1,
        ("STS.64", 1, 1): 1,
        ("LDS.64", 1, 1): 2,
        ("STG.E.64", 1, 1): 1,
    },
    "float4s": {
        ("LDG.E.128", 1, 1): 1,
        ("STS.128", 1, 1): 1,
        ("LDS.128", 1, 1): 2,
        ("STG.E.128", 1, 1): 1,
    },
    "stores": {("LDG.E", 1, 1): 1, ("STS.128", 4, 1): 1, ("LDS", 1, 1): 1, ("STG.E", 1, 1): 1},
    "three_of_four": {
        ("LDG.E", 1, 1): 1,
        ("STS", 1, 1): 1,
        ("LDS.128", 3, 1): 1,
        ("STG.E", 1, 1): 1,
    },
    "across": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS", 1, 1): 2, ("STG.E", 1, 1): 1},
    "any_start": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS", 1, 1): 4, ("STG.E", 1, 1): 1},
    "barrier_between": {
        ("LDG.E", 1, 1): 1,
        ("STS", 1, 1): 1,
        ("LDS.64", 2, 1): 2,
        ("STG.E", 1, 1): 1,
    },
    "fixed_places": {
        ("LDG.E", 1, 1): 1,
        ("STS", 1, 1): 2,
        ("LDS.128", 4, 1): 1,
        ("LDS.64", 2, 1): 1,
        ("LDS", 1, 1): 1,
        ("STG.E", 1, 1): 1,
    },
    "reduction": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 4, ("LDS", 1, 1): 7, ("STG.E", 1, 1): 1},
    "global_row": {("LDG.E.CONSTANT", 1, 1): 4, ("STG.E", 1, 1): 1},
    "local_array": {("LDG.E", 1, 1): 1, ("STL", 1, 1): 1, ("LDL", 1, 1): 1, ("STG.E", 1, 1): 1},
    "generic": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LD.E", 1, 1): 2, ("STG.E", 1, 1): 1},
    "ends_early": {("LDG.E", 1, 1): 1, ("STS", 1, 1): 1, ("LDS.128", 4, 1): 8, ("STG.E", 1, 1): 1},
}


def fused(text: str, name: str, arch: str) -> Fusion:
    """`fuse` for one kernel of a PTX text."""
    (function,) = (f for f in disassemble(text, arch) if f.name == name)
    return fuse(ptx.parse(text).kernels[name], function)


def shapes(groups: tuple[Group, ...]) -> Counter:
    return Counter((g.opcode, len(g.members), g.copies) for g in groups)


@pytest.fixture(scope="module")
def text() -> str:
    return ptx_of(SOURCE)


@functools.cache
def lesson(name: str) -> str:
    """The PTX of a kernel of the lessons."""
    kernel = tiled(int(name.removeprefix("tiled_"))) if name.startswith("tiled_") else KERNELS[name]
    return ptx_of(f'extern "C" {{\n{kernel.source}\n}}', *kernel.options)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", EXPECTED)
def test_groups_are_those_of_the_machine_code(text, name, arch):
    found = fused(text, name, arch)
    assert found.unresolved == ()
    assert shapes(found.groups) == EXPECTED[name]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", EXPECTED)
def test_groups_account_for_every_access_of_both_codes(text, name, arch):
    """Each of the PTX is in one group; each of the machine is one group's copy."""
    (function,) = (f for f in disassemble(text, arch) if f.name == name)
    found = fused(text, name, arch)
    assert sorted(id for g in found.groups for id in g.members) == sorted(found.accesses)
    kinds = ("LDS", "STS", "LDG", "STG", "LDL", "STL")
    machine = Counter(i.opcode for i in function.instructions if i.opcode.startswith(kinds))
    counted: Counter = Counter()
    for group in found.groups:
        counted[group.opcode] += group.copies
    assert {opcode: counted[opcode] for opcode in machine} == dict(machine)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", EXPECTED)
def test_members_of_a_group_fit_into_its_aligned_bytes(text, name, arch):
    found = fused(text, name, arch)
    for group in found.groups:
        members = [found.accesses[id] for id in group.members]
        assert len({(a.block, a.operation, a.space) for a in members}) == 1
        first = min(a.offset for a in members)
        assert max(a.offset + a.width for a in members) - first <= group.width


def test_a_tile_of_32_has_32_loads_of_a_word_and_8_of_four():
    """H200, n = 1024: 33,554,432 LDS.32 and 8,388,608 LDS.128, for 64 loads of the PTX."""
    for arch in ARCHITECTURES:
        found = fused(lesson("tiled"), "matmul_tiled", arch)
        assert found.unresolved == () and found.removed == () and found.spills == 0
        assert shapes(found.groups) == {
            ("LDG.E", 1, 1): 2,
            ("STS", 1, 1): 2,
            ("LDS", 1, 1): 32,
            ("LDS.128", 4, 1): 8,
            ("STG.E", 1, 1): 1,
        }
        warps, rounds = 1024 * 1024 // 32, 1024 // 32
        loads = [g for g in found.groups if g.opcode.startswith("LDS")]
        assert sum(len(g.members) for g in loads) * warps * rounds == 67_108_864
        assert sum(g.width == 4 for g in loads) * warps * rounds == 33_554_432
        assert sum(g.width == 16 for g in loads) * warps * rounds == 8_388_608
        wide = [found.accesses[id].line for g in loads if g.width == 16 for id in g.members]
        assert set(wide) == {_line_of("tiled", "sum += As[ty][k]")}


def test_the_fused_loads_of_a_tile_are_neighbours_in_a_row_of_a():
    found = fused(lesson("tiled"), "matmul_tiled", "sm_90")
    wide = sorted(
        [found.accesses[id].offset for id in g.members] for g in found.groups if g.width == 16
    )
    assert wide == [[16 * k, 16 * k + 4, 16 * k + 8, 16 * k + 12] for k in range(8)]


@pytest.mark.parametrize(("tile", "words", "quads"), [(8, 3 * 8, 3 * 2), (16, 16, 4)])
def test_smaller_tiles(tile, words, quads):
    """nvcc itself makes three copies of the loop over k0 with a tile of 8."""
    for arch in ARCHITECTURES:
        found = fused(lesson(f"tiled_{tile}"), "matmul_tiled", arch)
        assert found.unresolved == ()
        counts = shapes(found.groups)
        assert counts["LDS", 1, 1] == words and counts["LDS.128", 4, 1] == quads


@pytest.mark.parametrize("name", ["naive", "naive_uncoalesced"])
def test_the_naive_kernels_keep_every_access_though_ptxas_unrolls_their_loop(name):
    for arch in ARCHITECTURES:
        found = fused(lesson(name), KERNELS[name].entry, arch)
        assert found.unresolved == ()
        assert shapes(found.groups) == {
            ("LDG.E", 1, 7): 8,
            ("LDG.E", 1, 1): 2,
            ("STG.E", 1, 1): 1,
        }


def test_stores_of_the_register_tile_to_global_memory_are_fused():
    source = (KERNELS["tiled"].file.parent.parent / "helpers/data/register_tile.cu").read_text()
    for arch in ARCHITECTURES:
        found = fused(ptx_of(source), "matmul_register_tile", arch)
        assert found.unresolved == ()
        assert shapes(found.groups) == {
            ("LDG.E.128", 1, 1): 4,
            ("STS", 1, 1): 4,
            ("STS.128", 1, 1): 1,
            ("LDS.128", 1, 1): 32,
            ("STG.E.128", 1, 1): 8,
            ("STG.E.128", 4, 1): 8,
        }


def _line_of(name: str, text: str) -> int:
    lines = KERNELS[name].file.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


# -- what stays unresolved, and why ----------------------------------------


def doubts(found: Fusion) -> list[str]:
    return [entry.reason for entry in found.unresolved]


def test_a_value_kept_for_the_loops_next_round_is_unresolved(text):
    found = fused(text, "neighbours", "sm_90")
    (doubt,) = doubts(found)
    line = next(n for n, row in enumerate(SOURCE.splitlines(), 1) if "s[k] + s[k + 1]" in row)
    assert doubt.startswith(f"line {line}: the PTX's 4 accesses do not make up")


def test_a_load_fused_with_one_behind_a_branch_is_unresolved(text):
    found = fused(text, "read_ahead", "sm_90")
    assert len(found.unresolved) == 2
    assert not any(a.space == "shared" and a.operation == "ld" for a in _resolved(found))


def test_the_other_accesses_of_an_unresolved_kernel_are_resolved(text):
    found = fused(text, "neighbours", "sm_90")
    assert {(a.space, a.operation) for a in _resolved(found)} >= {
        ("global", "ld"),
        ("global", "st"),
        ("shared", "st"),
    }


def _resolved(found: Fusion) -> list:
    return [found.accesses[id] for g in found.groups for id in g.members]


HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) {
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .f32 %f<20>; .reg .b64 %rd<8>;
  .shared .align 16 .b8 s[4096];
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r2, %tid.x; mov.u32 %r3, s; shl.b32 %r4, %r2, 4; add.s32 %r5, %r3, %r4;
  cvt.rn.f32.u32 %f1, %r1; st.shared.f32 [%r5+64], %f1; bar.sync 0;
"""
TAIL = """
  st.global.f32 [%rd2], %f3;
  ret;
}
"""


def handwritten(body: str) -> Fusion:
    return fused(HEAD + body + TAIL, "k", "sm_80")


def test_bases_that_differ_by_a_number_are_one_run():
    found = handwritten("""
  ld.shared.f32 %f4, [%r5];
  add.s32 %r6, %r5, 8;
  ld.shared.f32 %f5, [%r6+-4];
  add.s32 %r7, %r6, -16;
  ld.shared.f32 %f6, [%r7+20];
  ld.shared.f32 %f7, [%r7+16];
  fma.rn.f32 %f8, %f4, %f5, %f6;
  fma.rn.f32 %f3, %f8, %f7, %f5;""")
    assert found.unresolved == ()
    (wide,) = (g for g in found.groups if g.width == 16)
    assert [found.accesses[id].offset for id in wide.members] == [0, 4, 8, 12]


def test_a_base_set_anew_is_another_run():
    found = handwritten("""
  mov.u32 %r6, %r5;
  ld.shared.f32 %f4, [%r6];
  mad.lo.s32 %r6, %r1, 4, %r5;
  ld.shared.f32 %f5, [%r6+4];
  add.f32 %f3, %f4, %f5;""")
    loads = [a for a in found.accesses.values() if (a.space, a.operation) == ("shared", "ld")]
    assert len({a.run for a in loads}) == 2
    assert found.unresolved == () and all(g.width == 4 for g in found.groups)


def test_two_accesses_on_one_line_of_the_ptx_are_unresolved():
    found = handwritten("""
  ld.shared.f32 %f4, [%r5]; ld.shared.f32 %f5, [%r5+4];
  add.f32 %f3, %f4, %f5;""")
    (doubt,) = doubts(found)
    assert "holds several accesses" in doubt


def test_a_load_whose_value_nobody_uses_is_unresolved():
    found = handwritten("""
  ld.shared.f32 %f4, [%r5];
  ld.shared.f32 %f5, [%r5+256];
  add.f32 %f3, %f4, %f4;""")
    assert len(found.unresolved) == 1


def test_accesses_of_a_kind_that_the_machine_code_lacks_are_removed():
    found = handwritten("""
  ld.shared.f32 %f4, [%r5];
  mov.f32 %f3, %f1;""")
    assert found.unresolved == ()
    assert [found.accesses[id].operation for id in found.removed] == ["ld"]


def test_loads_of_different_guards_are_apart():
    found = handwritten("""
  setp.gt.u32 %p1, %r2, 5;
  mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  @%p1 ld.shared.f32 %f3, [%r5];
  ld.shared.f32 %f4, [%r5+4];
  add.f32 %f3, %f3, %f4;""")
    loads = [a for a in found.accesses.values() if (a.space, a.operation) == ("shared", "ld")]
    assert len({a.run for a in loads}) == 2


def test_accesses_that_a_predicate_chooses_are_marked(text):
    found = fused(text, "reduction", "sm_80")
    marks = Counter(g.predicated for g in found.groups if g.opcode == "LDS")
    assert marks == {True: 6, False: 1}  # the last load is behind a branch


def test_a_guarded_load_stays_guarded():
    found = handwritten("""
  setp.gt.u32 %p1, %r2, 5;
  mov.f32 %f3, %f1;
  @%p1 ld.shared.f32 %f3, [%r5+4];""")
    assert found.unresolved == ()


LOOP = """
  mov.u32 %r6, 0;
  mov.f32 %f3, %f1;
again:
  {pragma}
  ld.shared.f32 %f4, [%r5];
  {store}
  fma.rn.f32 %f3, %f3, %f4, %f4;
  add.s32 %r6, %r6, 1;
  setp.lt.u32 %p1, %r6, {trips};
  @%p1 bra again;"""


def test_a_load_taken_out_of_a_loop_is_unresolved():
    found = handwritten(LOOP.format(pragma='.pragma "nounroll";', store="", trips="%r1"))
    (doubt,) = doubts(found)
    assert "outside the PTX's loop" in doubt or "does not wait" in doubt


def test_a_load_shared_by_the_rounds_of_an_unrolled_loop_is_unresolved():
    found = handwritten(LOOP.format(pragma="", store="", trips="%r1"))
    (doubt,) = doubts(found)
    assert "copies in the machine code, and the code around them has" in doubt


def test_stores_of_several_rounds_that_are_fused_are_unresolved():
    store = "st.shared.f32 [%r5+4], %f4; add.s32 %r5, %r5, 4;"
    found = handwritten(LOOP.format(pragma="", store=store, trips="12"))
    assert len(found.unresolved) == 2
    assert [a.offset for a in _resolved(found) if a.space == "shared"] == [64]  # before the loop


def test_spills_are_told_apart_from_accesses(text):
    name = "register_tile"
    functions = disassemble(text, "sm_80", ("-maxrregcount=24",))
    (function,) = (f for f in functions if f.name == name)
    found = fuse(ptx.parse(text).kernels[name], function)
    assert found.spills > 0
    assert {i.opcode[:3] for i in found.others} == {"LDL", "STL"}
    assert found.unresolved == () and shapes(found.groups) == EXPECTED[name]


def test_loads_that_are_never_executed_do_not_count():
    """Before cp.async on sm_80 ptxas puts @!PT LDS, which only takes time."""
    text = ptx_of("""
#include <cuda_pipeline.h>
extern "C" __global__ void copies(const float *a, float *o) {
    __shared__ float s[64];
    s[threadIdx.x] = 0; __syncthreads();
    __pipeline_memcpy_async(&s[threadIdx.x], &a[threadIdx.x], 4);
    __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
    o[threadIdx.x] = s[threadIdx.x ^ 1];
}""")
    (function,) = disassemble(text, "sm_80")
    assert "!PT" in {i.predicate for i in function.instructions if i.opcode == "LDS"}
    found = fuse(ptx.parse(text).kernels["copies"], function)
    assert found.unresolved == () and found.others == ()
    assert shapes(found.groups) == {("STS", 1, 1): 1, ("LDS", 1, 1): 1, ("STG.E", 1, 1): 1}


def test_loads_that_sank_below_a_branch_are_unresolved():
    found = handwritten("""
  setp.gt.u32 %p1, %r2, 5;
  ld.shared.f32 %f4, [%r5+4];
  ld.shared.f32 %f5, [%r5+40];
  mov.f32 %f3, %f1;
  @%p1 bra after;
  sin.approx.f32 %f3, %f4; sin.approx.f32 %f3, %f3; sin.approx.f32 %f3, %f3;
  sin.approx.f32 %f3, %f3; sin.approx.f32 %f3, %f3; sin.approx.f32 %f3, %f3;
  add.f32 %f3, %f3, %f5;
  st.global.f32 [%rd2+4], %f3;
  bar.sync 0;
after:""")
    (doubt,) = doubts(found)
    assert "was moved under a condition" in doubt


def test_the_arms_of_a_branch_may_become_predicates():
    found = handwritten("""
  setp.gt.u32 %p1, %r2, 5;
  @%p1 bra other;
  ld.shared.f32 %f4, [%r5+4];
  add.f32 %f3, %f4, %f4;
  bra after;
other:
  ld.shared.f32 %f4, [%r5+4];
  mul.f32 %f3, %f4, %f4;
after:""")
    assert found.unresolved == ()
    assert [g.predicated for g in found.groups if g.opcode == "LDS"] == [True, True]


def test_two_branches_on_one_predicate_are_one_condition():
    """ptxas leaves out the second branch: where the first is taken, so would be the second."""
    found = handwritten("""
  setp.gt.u32 %p1, %r2, 5;
  mov.f32 %f3, %f1;
  mov.f32 %f4, %f1;
  @%p1 bra middle;
  ld.shared.f32 %f4, [%r5+4];
  st.shared.f32 [%r5+80], %f4;
  bar.sync 0;
middle:
  @%p1 bra after;
  ld.shared.f32 %f3, [%r5+40];
  bar.sync 0;
after:""")
    assert found.unresolved == ()


CHAIN = """
  setp.gt.u32 %p1, %r2, 5;
  mov.f32 %f3, %f1;
  @%p1 bra after;
  and.b32 %r6, %r1, 3;
  {between}
  setp.ne.u32 %p2, %r6, 0;
  @%p2 bra {second};
  ld.shared.f32 %f3, [%r5+40];
  st.shared.f32 [%r5+80], %f3;
  bar.sync 0;
  ld.shared.f32 %f3, [%r5+44];
  bar.sync 0;
other:
after:"""


def test_branches_of_a_chain_may_be_one():
    """As of `a && b`: the machine code has one branch, of the line of the last."""
    found = handwritten(CHAIN.format(between="", second="after"))
    assert found.unresolved == ()


def test_a_chain_that_the_kernels_have(text):
    found = fused(lesson("warp_tile"), "matmul_warp_tile", "sm_90")
    places = {id for entry in found.unresolved for id in entry.members}
    assert {found.accesses[id].space for id in places} <= {"global"}
    wide = [g for g in found.groups if g.opcode == "LDS.128"]
    assert len(wide) == 2 * 8 * 4  # in two copies of the loop, for eight k, two of each matrix
