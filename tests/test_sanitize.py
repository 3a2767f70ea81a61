"""What helpers.sanitize reports: kinds, lines, threads and places, whatever the order of warps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from helpers import sanitize as module
from helpers.kernels import KERNELS
from helpers.memory import allocate, driver, upload
from helpers.sanitize import KINDS, sanitize

ORDERS = ("forward", "reversed", 0, 7)

EXCHANGE = """\
__global__ void exchange(const float *x, float *y)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    BARRIER
    y[t] = s[63 - t];
}
"""
RING = """\
__global__ void ring(float *y, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        s[t] = k + t;
        __syncthreads();
        sum += s[(t + 32) % 64];
    }
    y[t] = sum;
}
"""


def exchange(barrier: str = "", **options):
    source = EXCHANGE.replace("BARRIER", barrier)
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    return sanitize((source, "exchange"), x, y, grid=1, block=64, **options)


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_between_store_and_load(order):
    (f,) = exchange(order=order).findings
    assert (f.kind, f.severity, f.lines, f.file) == (
        "read-after-write race", "error", (5, 7), "kernel.cu",
    )  # fmt: skip
    (block, writer), (_, reader) = f.threads
    assert block == (0, 0, 0) and writer[0] + reader[0] == 63
    assert f.place == f"s+{4 * writer[0]}" and f.count == 64
    assert "__syncthreads()" in f.advice


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_before_the_next_store(order):
    y = np.full(64, np.nan, np.float32)
    (f,) = sanitize((RING, "ring"), y, np.int32(5), grid=1, block=64, order=order).findings
    assert (f.kind, f.lines) == ("write-after-read race", (9, 7))
    assert f.threads[0][1] != f.threads[1][1]


def test_with_its_barrier_it_is_clean():
    report = exchange("__syncthreads();")
    assert report.ok and report.findings == () and "nothing found" in str(report)


def test_the_text_is_the_same_every_time_and_names_no_address():
    texts = {str(exchange(order=order)) for order in ORDERS}
    assert len(texts) == 1 and "0x" not in texts.pop()


def test_in_jupyter_the_lines_are_marked():
    page = exchange()._repr_mimebundle_()["text/html"]
    marked = [row for row in page.split("<tr ") if "background" in row]
    assert ["s[t] = x[t];" in marked[0], "y[t] = s[63 - t];" in marked[1]] == [True, True]


def test_the_callers_arrays_stay_as_they_are_unless_asked_for():
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    right = EXCHANGE.replace("BARRIER", "__syncthreads();"), "exchange"
    sanitize(right, x, y, grid=1, block=64)
    assert np.isnan(y).all()
    sanitize(right, x, y, grid=1, block=64, write=True)
    np.testing.assert_array_equal(y, x[::-1])


def test_a_race_shows_in_the_result_in_some_order_only():
    results = []
    for order in ("forward", "reversed"):
        x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
        source = EXCHANGE.replace("BARRIER", "").replace("63 - t", "t % 32")
        report = sanitize((source, "exchange"), x, y, grid=1, block=64, order=order, write=True)
        results.append((y == np.tile(x[:32], 2)).all())
        assert [f.kind for f in report.findings] == ["read-after-write race"]
    assert results == [True, False]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("size", [(33, 35, 37), (130, 260, 84)], ids=str)
def test_the_lessons_kernels_are_clean(name, size):
    M, N, K = size
    A, B = (np.ones(shape, np.float32) for shape in ((M, K), (K, N)))
    with upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
        report = sanitize(KERNELS[name], dA, dB, dC, M, N, K)
    assert report.ok and not report.findings, str(report)


def finding(source: str, *arguments, kind: str, **shape):
    report = sanitize((source, "f"), *arguments, **shape)
    found = [f for f in report.findings if f.kind == kind]
    assert len(found) == 1, str(report)
    assert found[0].severity == KINDS[kind][0]
    return found[0], report


def test_past_the_end_of_an_array():
    source = "__global__ void f(float *x)\n{\n    x[threadIdx.x] = 1;\n}\n"
    f, report = finding(source, np.zeros(40, np.float32), kind="out of bounds", grid=1, block=64)
    assert f.lines == (3,) and f.threads == (((0, 0, 0), (40, 0, 0)),)
    assert f.place == "argument 0+160" and not report.ok


def test_past_the_end_of_a_shared_array_into_the_next():
    source = """\
__global__ void f(float *x)
{
    __shared__ float a[32], b[64];
    a[threadIdx.x + 1] = 1;
    b[threadIdx.x] = 2;
    __syncthreads();
    x[threadIdx.x] = a[threadIdx.x] + b[31 - threadIdx.x];
}
"""
    f, _ = finding(source, np.zeros(32, np.float32), kind="out of bounds", grid=1, block=32)
    assert f.lines == (4,) and f.threads[0][1] == (31, 0, 0)


def test_shared_memory_that_nobody_has_written():
    source = """\
__global__ void f(float *x)
{
    __shared__ float a[64];
    if (threadIdx.x) a[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = a[threadIdx.x];
}
"""
    f, _ = finding(source, np.zeros(64, np.float32), kind="uninitialised read", grid=1, block=64)
    assert f.lines == (6,) and f.place == "a+0" and f.threads[0][1] == (0, 0, 0)


def test_elements_that_are_never_written():
    source = "__global__ void f(float *x)\n{\n    x[2 * threadIdx.x] = 1;\n}\n"
    f, _ = finding(source, np.full(64, np.nan, np.float32), kind="never written", grid=1, block=32)
    assert f.place == "argument 0+4" and f.count == 32
    assert sanitize((source, "f"), np.zeros(64, np.float32), grid=1, block=32).ok


def test_an_array_that_is_read_before_it_is_written():
    source = "__global__ void f(float *x)\n{\n    x[threadIdx.x] += 1;\n}\n"
    f, _ = finding(source, np.full(32, np.nan, np.float32), kind="uninitialised read", grid=1,
                   block=32)  # fmt: skip
    assert f.lines == (3,) and f.place == "argument 0+0"


def test_two_blocks_that_write_one_element():
    source = "__global__ void f(float *x)\n{\n    x[threadIdx.x] = blockIdx.x;\n}\n"
    f, _ = finding(source, np.zeros(32, np.float32), kind="write-after-write race", grid=2,
                   block=32)  # fmt: skip
    assert f.lines == (3, 3) and {block for block, _ in f.threads} == {(0, 0, 0), (1, 0, 0)}
    equal = source.replace("blockIdx.x", "7")
    f, report = finding(equal, np.zeros(32, np.float32), kind="equal values written", grid=2,
                        block=32)  # fmt: skip
    assert report.ok and f.severity == "note"


def test_threads_that_return_before_a_barrier():
    source = """\
__global__ void f(float *x, int n)
{
    if (threadIdx.x >= n) return;
    x[threadIdx.x] = 1;
    __syncthreads();
}
"""
    f, report = finding(source, np.zeros(64, np.float32), np.int32(40),
                        kind="exited before a barrier", grid=1, block=64)  # fmt: skip
    assert f.lines == (3, 5) and report.ok and f.threads[0][1][0] >= 40


def test_warps_that_meet_at_different_barriers():
    source = """\
__global__ void f(float *x)
{
    if (threadIdx.x < 32) { x[threadIdx.x] = 1; __syncthreads(); }
    else {
        x[threadIdx.x] = 2;
        __syncthreads();
    }
}
"""
    f, _ = finding(source, np.zeros(64, np.float32), kind="barriers do not match", grid=1, block=64)
    assert f.lines == (3, 6)


def test_warps_that_meet_at_different_barriers_in_a_kernel_that_votes():
    source = """\
__global__ void f(float *x)
{
    int n = __syncthreads_count(x[threadIdx.x] > 0);
    if (threadIdx.x < 32) { x[threadIdx.x] = n; __syncthreads(); }
    else {
        x[threadIdx.x] = 2;
        __syncthreads();
    }
}
"""
    report = sanitize((source, "f"), np.zeros(64, np.float32), grid=1, block=64)
    assert [(f.kind, f.lines) for f in report.findings] == [("barriers do not match", (4, 7))]


def test_a_barrier_that_too_few_threads_come_to_is_a_deadlock():
    source = """\
__global__ void f(float *x)
{
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
    x[threadIdx.x] = 1;
}
"""
    f, report = finding(source, np.zeros(64, np.float32), kind="deadlock", grid=1, block=64)
    assert f.lines == (3, 5) and "(line 3)" in f.text and "ended on line 5" in f.text
    assert f.threads == (((0, 0, 0), (0, 0, 0)), ((0, 0, 0), (32, 0, 0))) and not report.ok


def test_lanes_that_miss_a_barrier_are_a_finding_and_no_hang():
    source = """\
__global__ void f(float *x, int n)
{
    if (threadIdx.x < n)
        __syncthreads();
    x[threadIdx.x] = 1;
}
"""
    f, _ = finding(source, np.zeros(32, np.float32), np.int32(5), kind="divergent barrier",
                   grid=1, block=32)  # fmt: skip
    assert f.lines == (4, 5) and "goes on at line 5 and ends without it" in f.text
    assert f.threads == (((0, 0, 0), (0, 0, 0)), ((0, 0, 0), (5, 0, 0)))


DIVERGENT = """\
__global__ void f(float *x)
{
    __shared__ float s[64];
    __shared__ int flag;
    int t = threadIdx.x;
    s[t] = flag = 0;
    if (t < 8) {
        x[t] = 1;
        __syncthreads();
    } else {
        x[t] = 2;
        ELSE
        x[t] += s[t ^ 1];
    }
    AFTER
}
"""


@pytest.mark.parametrize("otherwise, after, lines, text", [
    ("__syncthreads();", "", (9, 12), "goes to the barrier on line 9 instead"),
    ("", "__syncthreads();", (9, 15), "goes to the barrier on line 15 instead"),
    ("", "x[t] += 1;", (9, 15), "goes on at line 15 and ends without it"),
    ("", "__syncwarp();", (9, 15), "waits at the __syncwarp() on line 15"),
    ("", "if (x[t] > 1) __syncthreads();", (9, 15), "it is on line 15"),
])  # fmt: skip
def test_where_the_threads_are_that_a_barrier_misses(otherwise, after, lines, text):
    source = DIVERGENT.replace("ELSE", otherwise).replace("AFTER", after)
    for order in ORDERS:
        report = sanitize((source, "f"), np.zeros(64, np.float32), grid=1, block=64, order=order)
        f = next(f for f in report.findings if f.kind == "divergent barrier")
        assert f.lines == lines and text in f.text
        marked = report._repr_mimebundle_()["text/html"].count("background: rgba(213")
        assert marked == len([g for g in report.findings for _ in set(g.lines)])


def test_memory_of_malloc():
    source = """\
__global__ void f(float *x)
{
    float *p = (float *)malloc(8);
    p[0] = 1;
    x[threadIdx.x] = p[0] + p[1];
}
"""
    report = sanitize((source, "f"), np.zeros(4, np.float32), grid=1, block=4)
    kinds = {f.kind: f for f in report.findings}
    assert kinds["uninitialised read"].lines == (5,)
    assert kinds["memory not freed"].lines == (3,) and kinds["memory not freed"].count == 4


def test_memory_that_free_has_taken_back():
    source = """\
__global__ void f(float *x)
{
    float *p = (float *)malloc(8);
    p[0] = 1;
    free(p);
    x[threadIdx.x] = p[0];
}
"""
    f, report = finding(source, np.zeros(4, np.float32), kind="use after free", grid=1, block=4)
    assert f.lines == (5, 6) and [one.kind for one in report.findings] == ["use after free"]


COPY = """\
__global__ void copy(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x];
}
__global__ void first(float **a, float *y)
{
    y[threadIdx.x] = a[1][threadIdx.x];
}
__global__ void ignore(const float *x, float *y)
{
    y[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("made", ["DeviceArray", "DeviceAllocation", "GPUArray"])
def test_an_argument_that_the_host_has_freed(autoinit, made, order):
    from pycuda.gpuarray import to_gpu

    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    argument = {"DeviceArray": upload, "GPUArray": to_gpu}.get(made, driver().to_device)(x)
    assert sanitize((COPY, "copy"), argument, y, grid=1, block=64).ok
    (argument.gpudata if made == "GPUArray" else argument).free()
    report = sanitize((COPY, "copy"), argument, y, grid=1, block=64, order=order)
    (f,) = report.findings
    assert (f.kind, f.severity, f.lines) == ("use after free", "error", (3,)) and not report.ok
    assert f.place.startswith("argument 0+") and "argument 0" in f.text
    assert "freed before the launch" in f.text
    # A pointer that nobody uses does no harm.
    assert sanitize((COPY, "ignore"), argument, y, grid=1, block=64).ok


def test_an_array_behind_a_pointer_that_the_host_has_freed(autoinit):
    if autoinit.backend == "gpu":
        pytest.skip("nobody on a GPU knows what a mere address has been")
    y = np.zeros(64, np.float32)
    with upload(y) as kept:
        gone = upload(y)
        table = np.array([int(kept), int(gone)], np.uint64)
        assert sanitize((COPY, "first"), table, y, grid=1, block=64).ok
        gone.free()
        for argument in (table, driver().to_device(table)):
            (f,) = sanitize((COPY, "first"), argument, y, grid=1, block=64).findings
            assert (f.kind, f.lines, f.place) == ("use after free", (7,), "*(argument 0+8)+0")


def test_memory_that_is_freed_is_not_given_to_the_next_at_once(autoinit):
    """So that the pointer to it is known for what it is."""
    if autoinit.backend == "gpu":
        pytest.skip("a GPU's driver chooses the place")
    x = np.zeros(64, np.float32)
    gone = driver().to_device(x)
    gone.free()
    with upload(x):
        (f,) = sanitize((COPY, "copy"), gone, x, grid=1, block=64).findings
        assert f.kind == "use after free"


def test_a_report_says_that_it_does_not_tell_all():
    report = dataclasses.replace(exchange(), lost=12345)
    for text in (str(report), report._repr_mimebundle_()["text/html"]):
        assert "12,345 more of these kinds, between too many lines to tell them all" in text
    assert exchange().lost == 0


def test_findings_are_values():
    (f,) = exchange().findings
    with pytest.raises(dataclasses.FrozenInstanceError):
        f.kind = "other"
    assert hash(f) == hash(exchange().findings[0])


def test_an_order_that_is_none():
    with pytest.raises(ValueError, match="order='backward'"):
        exchange(order="backward")


def test_every_kind_says_what_to_do():
    assert all(advice and severity in ("error", "warning", "note")
               for severity, advice in module.KINDS.values())  # fmt: skip


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_copy_that_nobody_waits_for_is_found_in_spite_of_barriers(rounds):
    source = r"""extern "C" __global__ void f(const float *x, float *y, int rounds)
    {
        __shared__ float s[64];
        float sum = 0;
        for (int k = 0; k < rounds; ++k) {
            unsigned to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
            const float *from = x + threadIdx.x + 64 * k;
            asm("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from));
            __syncthreads();
            sum += s[63 - threadIdx.x];
            __syncthreads();
        }
        y[threadIdx.x] = sum;
    }"""
    x, y = np.arange(256, dtype=np.float32), np.full(64, np.nan, np.float32)
    report = sanitize((source, "f"), x, y, np.int32(rounds), grid=1, block=64)
    found = [f for f in report.findings if f.kind == "read-after-write race"]
    assert [f.lines for f in found] == [(8, 10)]
