"""What the engine reads as PTX and what it refuses, compared with ptxas; and PTX with mistakes."""

from __future__ import annotations

import ctypes
import re
import subprocess

import pytest

from helpers import simt
from helpers.simt import cache
from helpers.toolkit import require_toolkit
from tests.fuzz import changed, malformed

HEAD = """.version 9.0
.target sm_80
.address_size 64
.global .align 4 .b8 gv[64];
.visible .entry f(.param .u64 o, .param .u32 n) {
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<9>;
.reg .f64 %fd<9>; .reg .u32 %u<9>; .reg .s32 %s<9>; .reg .b128 %q<3>;
.shared .align 16 .b8 sh[256]; .local .align 16 .b8 lo[64];
"""
TAIL = "\nL: ret;\n}\n"

ACCEPTED = """
add.f32 %f1, %f2, 1.0;
add.f32 %f1, %f2, 0d3FF0000000000000;
add.f64 %fd1, %fd2, 0f3F800000;
mov.b32 %r1, 0f3F800000;
mov.b32 %f1, 1;
mov.f32 %f1, %r1;
mov.b32 %f1, %r1;
mov.u32 %u1, %s1;
add.s32 %r1, %r2, 4294967295;
add.s32 %r1, %r2, 4294967296;
add.s32 %r1, %r2, -2147483649;
add.s32 %r1, %r2, 99999999999;
add.u16 %h1, %h2, 65536;
add.u16 %h1, %h2, -1;
add.u16 %h1, %h2, -65537;
mov.u16 %h1, 70000;
add.s64 %rd1, %rd2, 18446744073709551615;
add.f32 %r1, %r2, %r3;
add.s32 %u1, %s2, %r3;
mov.u64 %rd1, gv;
mov.u64 %rd1, gv+4;
mov.u32 %r1, sh;
mov.u64 %rd1, sh;
shl.b32 %r1, %r2, -1;
and.pred %p1, %p2, %p3;
and.pred %p1, %p2, !%p3;
and.pred %p1, %p2, 1;
not.pred %p1, %p2;
xor.pred %p1, %p2, -1;
setp.lt.s32 %p1, %r1, %r2;
setp.lt.s32 %p1|%p2, %r1, %r2;
setp.lt.and.s32 %p1, %r1, %r2, %p2;
setp.lt.and.s32 %p1, %r1, %r2, !%p2;
setp.eq.b32 %p1, %r1, %r2;
setp.lo.u32 %p1, %r1, %r2;
setp.lt.u32 _, %r1, %r2;
setp.lt.u32 %p1|_, %r1, %r2;
selp.b32 %r1, %r2, %r3, %p1;
selp.b32 %r1, %r2, %r3, !%p1;
selp.b32 %r1, %r2, %r3, 1;
cvt.u32.u64 %r1, %rd1;
cvt.u32.u64 %rd1, %rd2;
cvt.u8.u32 %r1, %r2;
cvt.u8.u32 %h1, %r2;
cvt.u32.u8 %r1, %h1;
cvt.u32.u8 %r1, %r2;
cvt.rn.f32.s32 %r1, %r2;
cvt.rn.f32.s32 %f1, %s2;
cvt.rni.s32.f32 %r1, %r2;
cvt.rn.f32.f64 %r1, %rd1;
cvt.sat.u32.s32 %r1, %r2;
cvt.u32.u32 %r1, 5;
cvt.u64.u32 %rd1, -1;
cvt.u32.u32 %r1, %tid.x;
ld.global.u32 %r1, [%rd1];
ld.global.u32 %rd1, [%rd1];
ld.global.u8 %r1, [%rd1];
ld.global.f32 %r1, [%rd1];
ld.global.f32 %rd1, [%rd1];
ld.global.b32 %f1, [%rd1];
ld.shared.u32 %r1, [%rd1];
ld.shared.u32 %r1, [%r1];
ld.global.u32 %r1, [gv+4];
ld.shared.u32 %r1, [sh+4];
ld.u32 %r1, [gv];
ld.u32 %r1, [sh];
ld.local.u32 %r1, [lo];
ld.param.u32 %r1, [n];
ld.param.u64 %rd1, [n];
ld.param.u32 %r1, [n+4];
ld.param.u32 %r1, [o+2];
ld.global.u32 %r1, [%rd1+4294967296];
ld.global.u32 %r1, [%rd1+2147483648];
ld.global.u32 %r1, [%rd1+-4];
ld.global.v2.u32 {%r1, %r2}, [%rd1];
ld.global.v2.u32 {%r1, _}, [%rd1];
ld.v2.global.u32 {%r1,%r2}, [%rd1];
ld.global.relaxed.gpu.u32 %r1, [%rd1];
ld.relaxed.gpu.global.u32 %r1, [%rd1];
ld.global.nc.u32 %r1, [%rd1];
ld.const.u32 %r1, [%rd1];
st.global.u32 [%rd1], 5;
st.global.u32 [%rd1], %rd2;
st.global.u8 [%rd1], %rd2;
st.global.f32 [%rd1], 0f3F800000;
st.global.b32 [%rd1], 0f3F800000;
st.global.v2.u32 [%rd1], {1, %r2};
st.global.u8 [%rd1], 256;
st.global.u8 [%rd1], -300;
addc.u32 %r1, %r2, %r3;
add.cc.u32 %r1, %r2, %r3;
add.sat.s32 %r1, %r2, %r3;
mul.wide.u32 %rd1, %r2, 5;
mad.lo.s32 %r1, %r2, %r3, %r4;
mad.wide.s32 %rd1, %r2, %r3, %rd4;
mad.rn.f32 %f1, %f2, %f3, %f4;
fma.rn.f32 %f1, %f2, %f3, %f4;
div.rn.f32 %f1, %f2, %f3;
div.full.f32 %f1, %f2, %f3;
add.rn.ftz.sat.f32 %f1, %f2, %f3;
add.sat.ftz.rn.f32 %f1, %f2, %f3;
add.f16 %h1, %h2, %h3;
add.f16x2 %r1, %r2, %r3;
min.f32 %f1, %f2, %f3;
popc.b32 %r1, %r2;
popc.b64 %r1, %rd2;
clz.b64 %r1, %rd2;
bfind.s64 %r1, %rd2;
bfe.u32 %r1, %r2, %r3, %r4;
bfe.u64 %rd1, %rd2, %r3, %r4;
bfi.b32 %r1, %r2, %r3, %r4, %r5;
bfi.b64 %rd1, %rd2, %rd3, %r4, %r5;
prmt.b32 %r1, %r2, %r3, %r4;
prmt.b32 %r1, %r2, %r3, 0x5410;
lop3.b32 %r1, %r2, %r3, %r4, 0x96;
lop3.b32 %r1, %r2, %r3, %r4, 300;
lop3.b32 %r1, %r2, %r3, %r4, -1;
lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2;
shf.l.wrap.b32 %r1, %r2, %r3, %r4;
sad.u32 %r1, %r2, %r3, %r4;
set.eq.u32.u32 %r1, %r2, %r3;
set.eq.f32.u32 %f1, %r2, %r3;
set.eq.u32.f32 %r1, %f2, %f3;
slct.u32.s32 %r1, %r2, %r3, %r4;
slct.f32.f32 %f1, %f2, %f3, %f4;
shfl.sync.idx.b32 %r1, %r2, %r3, 31, -1;
shfl.sync.idx.b32 %r1|%p1, %r2, %r3, 31, -1;
shfl.sync.idx.b32 %f1|%p1, %f2, %r3, 31, -1;
vote.sync.any.pred %p1, %p2, -1;
vote.sync.ballot.b32 %r1, %p2, -1;
vote.sync.ballot.b32 %r1, !%p2, -1;
activemask.b32 %r1;
bar.sync 0;
bar.sync 0, 64;
bar.sync 0, 0;
bar.sync 0, -32;
bar.sync %r1, %r2;
bar.arrive 0, 64;
bar.red.popc.u32 %r1, 0, %p1;
bar.red.and.pred %p1, 0, %p2;
barrier.sync.aligned 0;
barrier.sync 0;
bar.warp.sync -1;
bar.warp.sync 0;
membar.cta;
fence.acq_rel.gpu;
atom.global.add.u32 %r1, [%rd1], 1;
atom.global.add.u64 %rd1, [%rd1], 1;
atom.global.add.f32 %f1, [%rd1], 1.0;
atom.global.cas.b32 %r1, [%rd1], 1, 2;
atom.global.exch.b32 _, [%rd1], 1;
atom.shared.add.u32 %r1, [%r1], 1;
atom.global.inc.u32 %r1, [%rd1], 1;
red.global.add.u32 [%rd1], 1;
bra L;
bra.uni L;
@%p1 bra L;
@!%p1 bra L;
exit;
trap;
nanosleep.u32 100;
nanosleep.u32 %r1;
cvta.to.global.u64 %rd1, %rd2;
cvta.global.u64 %rd1, gv;
cvta.global.u64 %rd1, 5;
mov.b64 %rd1, {%r1, %r2};
mov.b64 {%r1, %r2}, %rd1;
mov.b64 {%r1, _}, %rd1;
mov.b64 %rd1, {%h1, %h2, %h3, %h4};
mov.b64 %rd1, {%r1, 5};
mov.b32 %r1, {%h1, %h2};
mov.pred %p1, %p2;
mov.pred %p1, 1;
mov.pred %p1, !%p2;
mov.u32 %r1, %tid.w;
mov.u16 %h1, %tid.x;
mov.b32 %r1, %tid.x;
mov.s32 %r1, %tid.x;
mov.u64 %rd1, %clock64;
mov.u32 %r1, %clock;
mov.u32 %r1, WARP_SZ;
.local .b32 v; mov.u64 %rd1, v;
prefetch.global.L1 [%rd1];
prefetch.L1 [%rd1];
testp.finite.f32 %p1, %f1;
copysign.f32 %f1, %f2, %f3;
cvt.rn.f16x2.f32 %r1, %f1, %f2;
cvt.rn.f16.f32 %h1, %f1;
cvt.rn.f16.f32 %r1, %f1;
cvt.f32.f16 %f1, %h1;
cvt.f32.f16 %f1, %r1;
cvt.rzi.u32.f32 %rd1, %f1;
cvt.rn.f32.u32 %rd1, %r1;
cvt.u16.u32 %h1, 70000;
cvt.s32.s8 %r1, %rd1;
neg.f32 %f1, %r1;
dp4a.u32.u32 %r1, %r2, %r3, %r4;
mul24.lo.u32 %r1, %r2, %r3;
fns.b32 %r1, %r2, %r3, %r4;
"""
REFUSED = """
add.f32 %f1, %f2, 1;
add.s32 %r1, %r2, 0f3F800000;
add.s32 %r1, %r2, 1.5;
mov.u32 %r1, 0f3F800000;
mov.f32 %f1, 1;
mov.u32 %f1, %r1;
mov.u32 %r1, %f1;
mov.u32 %r1, %rd1;
mov.b32 %r1, %q1;
add.u32 %f1, %f2, 1;
add.f32 %u1, %r2, %r3;
add.s32 %r1, %rd2, %r3;
add.s32 1, %r2, %r3;
add.s32 %r1, %tid.x, %tid.y;
add.s32 %r1, %tid.q, 1;
add.s32 %r1, %r2, %r99;
add.s32 %tid.x, %r1, %r2;
add.s32 %r1, %r2, gv;
add.s64 %rd1, %rd2, gv;
shl.b32 %r1, %r2, %rd1;
shl.b64 %rd1, %rd2, %rd3;
shl.u32 %r1, %r2, 1;
shr.b32 %r1, %r2, %h1;
shr.f32 %f1, %f2, 1;
and.b32 %r1, %r2, %p1;
and.u32 %r1, %r2, %r3;
setp.lt.s32 %r1, %r1, %r2;
setp.lt.b32 %p1, %r1, %r2;
setp.lo.s32 %p1, %r1, %r2;
setp.eq.pred %p1, %p2, %p3;
setp.lt.u8 %p1, %r1, %r2;
setp.nan.s32 %p1, %r1, %r2;
selp.u8 %r1, %r2, %r3, %p1;
selp.pred %p1, %p2, %p3, %p4;
cvt.u32.u64 %h1, %rd2;
cvt.u32.u64 %r1, %r2;
cvt.f32.s32 %r1, %r2;
cvt.rn.f32.s32 %f1, %f2;
cvt.rn.f32.s32 %s1, %s2;
cvt.rn.s32.f32 %r1, %r2;
cvt.s32.f32 %r1, %r2;
cvt.rn.u32.u64 %r1, %rd1;
cvt.f32.f64 %r1, %rd1;
cvt.rn.f64.f32 %rd1, %r1;
cvt.ftz.u32.s32 %r1, %r2;
cvt.b32.u32 %r1, %r2;
cvt.u32.pred %r1, %p1;
ld.global.u32 %h1, [%rd1];
ld.global.f32 %u1, [%rd1];
ld.global.u32 %f1, [%rd1];
ld.global.f32 %fd1, [%rd1];
ld.shared.u32 %r1, [gv];
ld.global.u32 %r1, [sh];
ld.param.u32 %r1, [nn];
ld.global.u32 %p1, [%rd1];
ld.global.v2.u32 %r1, [%rd1];
ld.global.u32 {%r1, %r2}, [%rd1];
ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];
ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd1];
ld.global.v2.b128 {%q1, %q2}, [%rd1];
ld.global.u32 %r1, %rd1;
ld.global.pred %p1, [%rd1];
st.global.u32 [%rd1], %h2;
st.global.f32 [%rd1], %u2;
st.global.f32 [%rd1], 1;
st.global.u32 [%rd1], 0f3F800000;
st.global.u32 [%rd1], %tid.x;
st.const.u32 [%rd1], %r1;
st.param.u32 [n], %r1;
add.sat.u32 %r1, %r2, %r3;
mul.s32 %r1, %r2, %r3;
mul.lo.f32 %f1, %f2, %f3;
mul.wide.u32 %r1, %r2, 5;
mul.wide.u64 %rd1, %rd2, 5;
mul.lo.hi.u32 %r1, %r2, 5;
mad.wide.s32 %rd1, %r2, %r3, %r4;
mad.lo.s32 %r1, %r2, %r3;
mad.f32 %f1, %f2, %f3, %f4;
fma.f32 %f1, %f2, %f3, %f4;
fma.rn.s32 %r1, %r2, %r3, %r4;
div.f32 %f1, %f2, %f3;
div.full.rn.f32 %f1, %f2, %f3;
rem.f32 %f1, %f2, %f3;
rcp.f32 %f1, %f2;
sqrt.f32 %f1, %f2;
rsqrt.f32 %f1, %f2;
sin.f32 %f1, %f2;
add.rn.rz.f32 %f1, %f2, %f3;
add.rn.rn.f32 %f1, %f2, %f3;
add.ftz.ftz.f32 %f1, %f2, %f3;
add.rn.s32 %r1, %r2, %r3;
add.ftz.f64 %fd1, %fd2, %fd3;
add.f32 %f1, %f2, %f3, %f4;
abs.u32 %r1, %r2;
neg.u32 %r1, %r2;
neg.b32 %r1, %r2;
min.b32 %r1, %r2, %r3;
popc.u32 %r1, %r2;
popc.b64 %rd1, %rd2;
bfe.u64 %rd1, %rd2, %rd3, %r4;
lop3.b32 %r1, %r2, %r3, %r4, %r5;
shf.l.b32 %r1, %r2, %r3, %r4;
set.eq.u32 %r1, %r2, %r3;
shfl.sync.idx.b32 %rd1, %r2, %r3, 31, -1;
shfl.sync.idx.u32 %r1, %r2, %r3, 31, -1;
shfl.idx.b32 %r1, %r2, %r3, 31;
vote.sync.ballot.b32 %r1, %r2, -1;
bar.sync 16;
bar.sync 0, 33;
bar.arrive 0;
bar.red.and.pred %r1, 0, %p2;
bar.red.popc.pred %p1, 0, %p2;
bar.sync;
bar.sync 0, 32, 3;
membar.cta %r1;
atom.global.add.s64 %rd1, [%rd1], 1;
atom.global.add.f32 %f1, [%rd1], 1;
atom.global.cas.u32 %r1, [%rd1], 1, 2;
atom.global.cas.b32 %r1, [%rd1], 1;
atom.global.add.u32 %r1, [%rd1], 1, 2;
atom.global.add.u32 %rd1, [%rd1], 1;
atom.local.add.u32 %r1, [%rd1], 1;
atom.global.inc.u64 %rd1, [%rd1], 1;
atom.global.min.f32 %f1, [%rd1], 1.0;
atom.global.min.u32.add %r1, [%rd1], 1;
atom.global.u32 %r1, [%rd1], 1;
red.global.exch.b32 [%rd1], 1;
red.global.cas.b32 [%rd1], 1, 2;
bra L, L;
bra nowhere;
bra %r1;
bra 5;
@%r1 bra L;
ret 5;
exit 5;
cvta.u64 %rd1, %rd2;
cvta.to.global.s64 %rd1, %rd2;
mov.b64 {%h1, %h2}, %rd1;
mov.u64 %rd1, {%r1, %r2};
mov.v2.u32 %r1, %r2;
mov.u32 %r1, %tid;
mov.u64 %rd1, %tid.x;
mov.f32 %f1, %tid.x;
mov.u32 %r1, %clock64;
mov.u32 %r1, %foo;
mov.u32 %r1, %warpsize;
mov.u8 %r1, 5;
cvt.rn.f32.u32 %fd1, %r1;
not.b32 %r1, %p1;
add.u32 %r1, %r2, !%r3;
add.u32 %r1|%r2, %r2, %r3;
add.u32 {%r1,%r2}, %r2, %r3;
add.u32 %r1, %r2, {%r3};
add.u32 %r1, %r2, [%r3];
"""
# Those at which ptxas gives up, so that it says nothing of the others.
FATAL = """
add.s32 %r1, _, %r3;
mov.u32 %r1, gv;
ld.global.u32 %r1, [%r1];
ld.global.u32 %r1, [%rd1-4];
ld.global.u32 %r1, [%rd1+%rd2];
@1 bra L;
cvta.to.global.u32 %r1, %r2;
L2: add.s32 %r1, %r2, 1; L2: add.s32 %r1, %r2, 1;
{ .reg .b32 x; mov.u32 x, 1; } mov.u32 x, 1;
.reg .b32 %r<4>;
.reg .b32 %zz; .reg .b32 %zz;
"""


def statements(text: str) -> list[str]:
    return text.strip().split("\n")


def lines_ptxas_refuses(text: str, folder) -> set[int]:
    """The lines, from 1, that ptxas has an error in."""
    path = folder / "all.ptx"
    path.write_text(text)
    command = [require_toolkit().ptxas, "-arch=sm_80", path, "-o", folder / "all.cubin"]
    done = subprocess.run(command, capture_output=True, text=True)
    return {int(n) for n in re.findall(r"line (\d+); (?:error|fatal)", done.stdout + done.stderr)}


def load(statement: str, memory: simt.Memory | None = None) -> simt.Function:
    module = simt.Module(HEAD + statement + TAIL, memory or simt.Memory(1 << 20))
    return module.functions["f"]


def test_what_ptxas_accepts_is_accepted(tmp_path):
    assert not lines_ptxas_refuses(HEAD + ACCEPTED + TAIL, tmp_path)
    leaving = ("bra", "exit", "trap")
    load("\n".join(s for s in statements(ACCEPTED) if not s.startswith(leaving))).compiled(
        (32, 1, 1)
    )
    for statement in statements(ACCEPTED):
        if statement.startswith(leaving):
            load(statement).compiled((32, 1, 1))


def test_what_ptxas_refuses_is_refused(tmp_path):
    first = HEAD.count("\n") + 2
    wrong = lines_ptxas_refuses(HEAD + REFUSED + TAIL, tmp_path)
    assert wrong == set(range(first, first + len(statements(REFUSED))))
    for statement in statements(REFUSED) + statements(FATAL):
        with pytest.raises((simt.InvalidPtx, simt.Unsupported)):
            load(statement).compiled((32, 1, 1))
            pytest.fail(statement)


def test_labels_are_known_in_their_braces_only():
    """Inline assembly with a label in braces may stand in a kernel twice."""
    loop = "{ L2: add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, %r2; @%p1 bra L2; }"
    memory = simt.Memory(1 << 20)
    out = memory.allocate(8)
    load(
        f"ld.param.u64 %rd1, [o]; mov.u32 %r1, 0; mov.u32 %r2, 5; {loop}"
        f" st.global.u32 [%rd1], %r1; mov.u32 %r2, 100; {loop} st.global.u32 [%rd1+4], %r1;",
        memory,
    ).launch((1, 1, 1), (1, 1, 1), out.to_bytes(8, "little") + bytes(8))
    assert list((ctypes.c_int32 * 2).from_address(out)) == [5, 100]


@pytest.mark.parametrize(
    "text",
    [
        ".reg .b32 %big<200000>;",  # none of which is used
        ".reg .b32 %big<1000000>;",
        "{" * 3000 + "}" * 3000,
        "mov.b64 %rd1, " + "{" * 3000 + "%r1" + "}" * 3000 + ";",
        "setp.eq.u32 " + "|".join(["%p1"] * 3000) + ", %r1, %r2;",
        "and.pred %p1, %p2, " + "!" * 3000 + "%p3;",
        ".shared .align 3 .b8 odd[4];",
        ".shared .align 99999999999999999999 .b8 odd[4];",
        ".shared .b8 many[1000000][1000000];",
        ".local .b8 many[99999999999];",
        ".reg .b32 %a<-1>;",
        ".branchtargets L;",
        "brx.idx %r1, L;",
        "call (%r1), gv, (%r2);",
        "call nobody;",
        "call (n), f, (n);",
        "mov.u32 %r1, %tid;",
        "cvt %r1, %r2;",
        "add;",
        "bar %r1;",
        "mov.b32 %f1, %tid.x; st.shared.f32 [%f1], %r5;",
        "barrier.cta %r1;",
        "bar.red.or.u32 %r1, 0, %p1;",
        "mbarrier.fetch %r1;",
        "wmma.div %r1, %r2;",
        "cp.sync [%rd1], [%rd2], 4;",
        "cp.async.wait_group 99999;",
        "createpolicy.b64 %rd1;",
        "shfl.sync.b32 %r1, %r2, 0, 31, -1;",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1}, {%fd2}, {%fd3}, {%fd4};",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2];",
        "lop3.b32 %r1, %r2, %r3, %r4, 99999;",
        "prmt.b32.x4e %r1, %r2, %r3, %r4;",
        "atom.add %r1, [%rd1], 1;",
        "dp4a.u32 %r1, %r2, %r3, %r4;",
        "wgmma;",
        "ld.global.u32 %r1, [%rd1+0x];",
        "mov.u64 %rd1, gv+;",
        "add.f32 %f1, %f2, 1e400;",
        ".loc 1;",
        "@%p1;",
        "@ bra L;",
    ],
)
def test_odd_statements_end_with_an_error_of_the_engine_or_none(text):
    try:
        load(text).compiled((32, 1, 1))
    except simt.SimtError as error:
        assert str(error)


def test_mutants_of_the_lessons(monkeypatch):
    """`python -m tests.fuzz malformed FIRST LAST` tries more of them, of all kernels there are."""
    monkeypatch.setattr(cache, "keep", lambda key, value: None)
    assert malformed.try_mutants(list(range(40)), malformed.lessons(), opinion=False) == []


def test_changed_kernels_give_what_a_second_reading_of_them_gives(monkeypatch):
    """`python -m tests.fuzz changed FIRST LAST` tries more of them."""
    monkeypatch.setattr(cache, "keep", lambda key, value: None)
    for text in changed.texts():
        assert changed.compare(text) == "same"
    assert changed.try_changed([*range(15), 767, 957, 1414]) == []
