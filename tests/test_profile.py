"""helpers.profile: what it accepts, what it says, and that it leaves the caller's arrays alone.

That its counts are the hardware's is in tests/counters.
"""

from __future__ import annotations

import csv
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

import numpy as np
import pytest

from helpers import simt
from helpers.kernels import CUDA_FOLDER, KERNELS
from helpers.memory import allocate, upload
from helpers.profile import profile
from helpers.replica import DoesNotFit

COLUMN_SUMS = """\
__global__ void column_sums(const float *a, float *sums, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= columns) return;
    float sum = 0.0f;
    for (int y = 0; y < rows; ++y)
        sum += a[y * columns + x];
    sums[x] = sum;
}
"""


def matrices(M: int, N: int, K: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    return A, B, np.full((M, N), np.nan, np.float32)


def counted(rows: int = 5, columns: int = 70):
    a = np.random.default_rng(1).standard_normal((rows, columns), dtype=np.float32)
    sizes = np.int32(rows), np.int32(columns)
    shape = {"grid": 3, "block": 32}
    return profile((COLUMN_SUMS, "column_sums"), a, np.zeros(columns, np.float32), *sizes, **shape)


def test_counts_that_can_be_done_by_hand():
    """70 columns: two whole warps and one of 6 lanes; rows begin 280 bytes apart."""
    found = counted()
    load = found.line(7).traffic[0]
    assert (load.space, load.operation) == ("global", "load")
    assert load.requests == 3 * 5 and load.lanes == 70 * 5 and load.bytes == 4 * 70 * 5
    starts = [4 * (70 * y + 32 * w) for y in range(5) for w in range(3)]
    ends = [4 * (70 * y + min(70, 32 * w + 32)) for y in range(5) for w in range(3)]
    pieces = sum((e - 1) // 32 - s // 32 + 1 for s, e in zip(starts, ends, strict=True))
    assert load.sectors == pieces
    assert load.ideal_sectors == 5 * (4 + 4 + 1)
    assert found.total("global", "store").requests == 3
    assert found.flops == {"f32": 70 * 5}
    assert found.line(4).branches == 3 and found.line(4).divergent == 1
    assert found.barriers == 0


def test_totals_are_the_sums_of_the_lines():
    A, B, C = matrices(40, 50, 60)
    found = profile(KERNELS["tiled"], A, B, C, 40, 50, 60)
    for space, operation in (("global", "load"), ("shared", "load"), ("shared", "store")):
        parts = [t for line in found.lines for t in line.traffic
                 if (t.space, t.operation) == (space, operation)]  # fmt: skip
        total = found.total(space, operation)
        for name in ("requests", "sectors", "wavefronts", "ideal_wavefronts", "bytes"):
            assert getattr(total, name) == sum(getattr(t, name) for t in parts)
    everything = found.total("shared")
    assert everything.requests == sum(found.total("shared", o).requests for o in ("load", "store"))
    assert found.barriers == 2 * 2 * 2 * 32 * 2  # barriers, steps, blocks, warps
    assert found.flops["f32"] == 2 * 64 * 64 * 64


@pytest.mark.parametrize("write", [False, True])
def test_arrays_change_only_if_asked(autoinit, write):
    A, B, C = matrices(33, 20, 10)
    with upload(A) as dA, upload(B) as dB, allocate((33, 20)) as dC:
        profile(KERNELS["naive"], dA, dB, dC, 33, 20, 10, write=write)
        device = dC.download()
    profile(KERNELS["naive"], A, B, C, 33, 20, 10, write=write)
    for result in (device, C):
        if write:
            np.testing.assert_allclose(result, A @ B, rtol=1e-4, atol=1e-4)
        else:
            assert np.isnan(result).all()


def test_a_kernel_by_the_name_of_its_file_and_by_its_path():
    A, B, C = matrices(35, 19, 7)
    sizes = [np.int32(n) for n in (35, 19, 7)]
    shape = {"grid": (1, 2), "block": (32, 32)}
    expected = profile(KERNELS["naive"], A, B, C, 35, 19, 7).to_dict()
    for source in ("01_naive.cu", CUDA_FOLDER / "01_naive.cu", str(CUDA_FOLDER / "01_naive.cu")):
        found = profile((source, "matmul_naive"), A, B, C, *sizes, **shape)
        assert found.to_dict() == expected
    tile = profile(("02_tiled.cu", "matmul_tiled", ("-DTILE=16",)), A, B, C, *sizes,
                   grid=(2, 3), block=(16, 16))  # fmt: skip
    assert tile.total("global", "store").requests > 0


def test_a_function_that_pycuda_has_compiled(autoinit):
    from pycuda.compiler import SourceModule

    function = SourceModule(COLUMN_SUMS).get_function("column_sums")
    a, sums = np.ones((5, 70), np.float32), np.zeros(70, np.float32)
    arguments = a, sums, np.int32(5), np.int32(70)
    if autoinit.backend == "gpu":
        with pytest.raises(TypeError, match="give the kernel as"):
            profile(function, *arguments, grid=3, block=32)
        return
    found = profile(function, *arguments, grid=3, block=32)
    assert found.total("global", "load").requests == 15


def test_as_text_as_csv_as_json_and_in_a_notebook(tmp_path):
    found = counted()
    text = str(found)
    assert text.splitlines()[0] == "kernel.cu, column_sums, grid (3, 1, 1), block (32, 1, 1)"
    assert text == str(counted())
    rows = list(csv.DictReader(io.StringIO(found.to_csv(tmp_path / "counts.csv"))))
    assert (tmp_path / "counts.csv").read_text() == found.to_csv()
    by_line = {(int(r["line"]), r["operation"]): r for r in rows}
    assert int(by_line[7, "load"]["sectors"]) == found.line(7).traffic[0].sectors
    assert json.loads(json.dumps(found.to_dict()))["lines"][0]["line"] == found.lines[0].number
    page = found._repr_mimebundle_()["text/html"]
    words = re.sub(r"<[^>]*>", "", page)  # of the highlighted source
    assert "sum += a[y * columns + x];" in words and "y &lt; rows" in words
    cells = [int(n) for n in re.findall(r">(\d+)%<", page)]
    assert 98 <= sum(cells) <= 102  # a line's share of all sectors and wavefronts


def test_lines_come_with_their_text():
    assert counted().line(7).text == "sum += a[y * columns + x];"
    assert counted().line("sum += a").number == 7
    with pytest.raises(ValueError, match=r"several lines have 'sum'.* 7, 8"):
        counted().line("sum")
    with pytest.raises(ValueError, match=r"nothing was executed on line 'total'"):
        counted().line("total")
    with pytest.raises(ValueError, match=r"nothing was executed on line 2 of kernel.cu; .* 7"):
        counted().line(2)


@pytest.mark.parametrize(
    ("space", "operation"), [("texture", None), ("global", "read"), ("", "load")]
)
def test_unknown_spaces_and_operations(space, operation):
    with pytest.raises(ValueError, match="is none of"):
        counted().total(space, operation)


@pytest.mark.parametrize(
    ("arguments", "shape", "error", "text"),
    [
        ((), {}, TypeError, "no launch shape"),
        ((), {"grid": 1, "block": 0}, ValueError, "block=0"),
        ((), {"grid": 1.5, "block": 32}, ValueError, "grid=1.5"),
        ((), {"grid": (1, 1), "block": (64, 32)}, ValueError, "more than 1024"),
        ((), {"grid": 1, "block": 32}, DoesNotFit, "takes 4 arguments, 0 are given"),
        ((1.0,), {"grid": 1, "block": 32}, DoesNotFit, r"np\.float32"),
        ((17,), {"grid": 1, "block": 32}, DoesNotFit, r"np\.int32\(17\)"),
        ((np.zeros((4, 4))[:, 1],), {"grid": 1, "block": 32}, DoesNotFit, "ascontiguousarray"),
        (("a",), {"grid": 1, "block": 32}, DoesNotFit, "argument 0"),
        ((None,), {"grid": 1, "block": 32}, DoesNotFit, "argument 0"),
    ],
)
def test_what_is_no_launch(autoinit, arguments, shape, error, text):
    with pytest.raises(error, match=text):
        profile((COLUMN_SUMS, "column_sums"), *arguments, **shape)


@pytest.mark.parametrize("kernel", [None, 3, "matmul", ("a", "b", "c", "d"), object()])
def test_what_is_no_kernel(kernel):
    with pytest.raises(TypeError, match="is no kernel"):
        profile(kernel, grid=1, block=1)


def test_a_file_and_a_kernel_that_are_not_there():
    with pytest.raises(FileNotFoundError, match="nothing.cu"):
        profile(("nothing.cu", "f"), grid=1, block=1)
    with pytest.raises(DoesNotFit, match="column_sums"):
        profile((COLUMN_SUMS, "row_sums"), grid=1, block=1)


def test_a_kernel_that_goes_wrong_says_where():
    with pytest.raises(simt.Fault, match="kernel.cu:7"):
        profile((COLUMN_SUMS, "column_sums"), np.zeros(100, np.float32), np.zeros(70, np.float32),
                np.int32(5), np.int32(70), grid=3, block=32)  # fmt: skip


def test_what_ptxas_makes_a_loop_of_is_not_guessed():
    source = """\
__global__ void sums(float *out)
{
    __shared__ float s[4];
    __shared__ int n[4];
    atomicAdd(&n[threadIdx.x % 4], 1);
    atomicAdd(&s[threadIdx.x % 4], 1.0f);
    out[threadIdx.x] = s[0] + n[0];
}
"""
    found = profile((source, "sums"), np.zeros(32, np.float32), grid=1, block=32)
    integers, floats = found.line(5).traffic[0], found.line(6).traffic[0]
    assert integers.wavefronts == 8 and integers.hardware.wavefronts == 8
    assert floats.hardware.wavefronts is None and "line 6" in floats.hardware.reason
    assert "line 6" in str(found)


def test_what_was_not_executed_is_not_listed():
    source = """\
__global__ void never(float *out, int n)
{
    if (n)
        out[threadIdx.x] = 1.0f;
}
"""
    found = profile((source, "never"), np.zeros(32, np.float32), np.int32(0), grid=1, block=32)
    assert not any(line.traffic for line in found.lines)
    assert found.total("global").requests == 0
    assert 4 not in [line.number for line in found.lines]
    assert "<table" in found._repr_mimebundle_()["text/html"] and "line" in str(found)
    with pytest.raises(ValueError, match="no access to memory was executed on line 4, nor on any"):
        found.picture(4)


def test_lines_of_other_files_have_no_text_of_this_one():
    source = """#line 5 "mine.cu"
__global__ void f(float *out)
{
#line 1 "other.cuh"
    out[threadIdx.x] = 1.0f;
#line 8 "mine.cu"
    out[threadIdx.x + 32] = 2.0f;
}
"""
    found = profile((source, "f"), np.zeros(64, np.float32), grid=1, block=32)
    assert found.file == "mine.cu"
    assert found.line(1, "other.cuh").text == "out[threadIdx.x] = 1.0f;"
    assert found.line(8).text == "out[threadIdx.x + 32] = 2.0f;"
    with pytest.raises(ValueError, match="nothing was executed on line 1 of mine.cu"):
        found.line(1)


@pytest.mark.parametrize("odd", ["\r\n", "\n// \x0c \u2028 \x1c ä\n", "\n"])
def test_characters_that_do_not_end_a_line_for_the_compiler(odd):
    source = odd + COLUMN_SUMS.replace("\n", "\r\n" if odd == "\r\n" else "\n")
    found = profile((source, "column_sums"), np.ones(70, np.float32), np.ones(70, np.float32),
                    np.int32(1), np.int32(70), grid=3, block=32)  # fmt: skip
    texts = {line.text: line.number for line in found.lines}
    assert texts["sum += a[y * columns + x];"] == 7 + odd.count("\n")


class _Tags(HTMLParser):
    """Whether all tags are closed in order, and the text between them."""

    def __init__(self, page: str):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_page_is_well_formed_and_shows_names_and_source_as_they_are():
    source = """#line 1 "a<b>&'c.cu"
__global__ void odd(float *out)
{
    if (threadIdx.x < 5 && out) out[threadIdx.x] = '<' + sizeof("<b>&amp;");
#line 1 "<other>.cuh"
    out[threadIdx.x + 32] = 1.0f;
}
"""
    found = profile((source, "odd"), np.zeros(64, np.float32), grid=1, block=32)
    page = _Tags(found._repr_mimebundle_()["text/html"])
    assert not page.open
    assert found.file == "a<b>&'c.cu" and found.file in page.text
    assert """out[threadIdx.x] = '<' + sizeof("<b>&amp;");""" in page.text
    assert "<other>.cuh:1" in page.text
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["file"] for row in rows] == ["<other>.cuh", "a<b>&'c.cu"]


def test_threads_may_profile_at_once():
    a, sums = np.ones((20, 1000), np.float32), np.zeros(1000, np.float32)

    def one(_=None):
        sizes = np.int32(20), np.int32(1000)
        return profile((COLUMN_SUMS, "column_sums"), a, sums, *sizes, grid=32, block=32).to_dict()

    expected = one()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(12))) == [expected] * 12


def test_instructions_and_branches_by_hand():
    source = """\
__device__ __noinline__ float deep(float x, int n)
{
    if (n == 0) return x;
    return deep(x * 2.0f, n - 1) + 1.0f;
}
__global__ void work(float *a, double *d, int n)
{
    float x = a[threadIdx.x];
    if (threadIdx.x % 2) x = x * 2.0f + 1.0f;
    else x = x / 3.0f;
    #pragma unroll 1
    for (int k = 0; k < n; ++k) {
        d[threadIdx.x] = d[threadIdx.x] + x;
        __syncthreads();
    }
    a[threadIdx.x] = deep(x, threadIdx.x % 4);
}
"""
    warps, n = 3 * 2, 5
    found = profile((source, "work"), np.ones(64, np.float32), np.ones(64), np.int32(n),
                    grid=3, block=64)  # fmt: skip
    parity, loop, deep = found.line(9), found.line(12), found.line(3)
    assert (parity.branches, parity.divergent) == (warps, warps)
    assert (loop.branches, loop.divergent) == (warps * (n + 1), 0)  # before it, and after each
    assert (deep.branches, deep.divergent) == (warps * 4, warps * 3)
    assert found.barriers == found.line(14).barriers == warps * n
    assert parity.flops == {"f32": 2 * warps * 16} and found.line(10).flops == {"f32": warps * 16}
    assert found.line(13).flops == {"f64": warps * 32 * n}
    assert found.line(4).flops == {"f32": 2 * warps * 8 * (1 + 2 + 3)}
