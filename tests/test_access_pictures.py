"""The pictures of accesses: what they draw against the rules, and the launch it comes from."""

from __future__ import annotations

import io
import re
from itertools import count

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from helpers import access_pictures as pictures
from helpers.kernels import CUDA_FOLDER, KERNELS
from helpers.plots import ORANGE, SKY, VERMILION
from helpers.profile import profile
from helpers.simt import rules
from helpers.simt.tracing import NotReached

WHOLE = (1 << 32) - 1
LANE = np.arange(32)

# name: addresses, mask, bytes a lane, load, wavefronts, ideal
BANKS = {
    "broadcast": (64 + 0 * LANE, WHOLE, 4, True, 1, 1),
    "a row": (256 + 4 * LANE, WHOLE, 4, True, 1, 1),
    "2-way": (8 * LANE, WHOLE, 4, True, 2, 1),
    "32-way": (128 * LANE, WHOLE, 4, False, 32, 1),
    "padded": (132 * LANE, WHOLE, 4, False, 1, 1),
    "half a warp each": (4 * (LANE % 16), WHOLE, 4, True, 1, 1),
    "bytes": (LANE, WHOLE, 1, True, 1, 1),
    "double": (8 * LANE, WHOLE, 8, True, 2, 2),
    "float4": (16 * LANE, WHOLE, 16, True, 4, 4),
    "float4 in two": (LANE // 16 * 32, WHOLE, 16, True, 2, 2),
    "float4 in a column": (128 * LANE, WHOLE, 16, True, 32, 4),
    "some lanes": (4 * LANE, 0x00F0_0F01, 4, True, 1, 1),
    "one lane": (4 * LANE, 1 << 7, 4, True, 1, 1),
    "every other lane": (16 * LANE, 0x5555_5555, 16, False, 4, 4),
}

# name: addresses, mask, bytes a lane, sectors, ideal, % of the bytes, lines
SECTORS = {
    "coalesced": (512 + 4 * LANE, WHOLE, 4, 4, 4, "100", 1),
    "misaligned by one": (516 + 4 * LANE, WHOLE, 4, 5, 4, "80", 2),
    "stride 2": (8 * LANE, WHOLE, 4, 8, 4, "50", 2),
    "a column": (4096 * LANE, WHOLE, 4, 32, 4, "12.5", 32),
    "broadcast": (40 + 0 * LANE, WHOLE, 4, 1, 1, "12.5", 1),
    "some lanes": (4 * LANE, 0x000F_FFF0, 4, 3, 2, "66.7", 1),
    "two rows": (256 * (LANE // 16) + 4 * (LANE % 16), WHOLE, 4, 4, 4, "100", 2),
    "float4": (16 * LANE, WHOLE, 16, 16, 16, "100", 4),
    "halves": (2 * LANE, WHOLE, 2, 2, 2, "100", 1),
    "one lane": (4 * LANE, 1 << 31, 4, 1, 1, "12.5", 1),
}


def _operation(load: bool) -> str:
    return "load" if load else "store"


def bank(name: str, title: str = ""):
    addresses, mask, size, load, *_ = BANKS[name]
    return pictures.bank_picture([int(a) for a in addresses], mask, size, _operation(load), title)


def sector(name: str, title: str = ""):
    addresses, mask, size, *_ = SECTORS[name]
    return pictures.sector_picture([int(a) for a in addresses], mask, size, title)


def painted(picture, color: str) -> list[tuple[float, float, float, float]]:
    """x, y, width and height of the rectangles of a colour, without those of the key."""
    (axes,) = picture.figure.axes
    found = [p for p in axes.patches if p.get_facecolor()[3]]
    return [(p.get_x(), p.get_y(), p.get_width(), p.get_height()) for p in found
            if to_hex(p.get_facecolor()).upper() == color
            and (p.get_width(), p.get_height()) != (0.9, 0.9)]  # fmt: skip


def words(picture) -> list[str]:
    return [text.get_text() for text in picture.figure.axes[0].texts]


# -- tables ----------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_each_word_of_each_lane_is_served_once(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 2, 4, 8, 16]))
    addresses = [int(a) * size for a in rng.integers(0, 4 * rng.integers(1, 60), 32)]
    mask, load = int(rng.integers(1, WHOLE + 1)), bool(rng.integers(2))
    table = pictures.bank_table(addresses, mask, size, _operation(load))
    assert len(table) == rules.wavefronts(addresses, mask, size, load)[0]
    assert sum(w.first for w in table) == rules.wavefronts(addresses, mask, size, load)[1]
    served = [(lane, word) for w in table for word, lanes in w.words.values() for lane in lanes]
    wanted = {(lane, byte // 4) for lane in range(32) if mask >> lane & 1
              for byte in range(addresses[lane], addresses[lane] + size)}  # fmt: skip
    assert len(served) == len(set(served))
    assert set(served) == wanted
    for wavefront in table:
        assert all(word % 32 == bank for bank, (word, _) in wavefront.words.items())
        assert set(wavefront.lanes) <= set(wavefront.group)


@pytest.mark.parametrize("seed", range(20))
def test_sectors_hold_the_bytes_that_lanes_access(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 2, 4, 8, 16]))
    addresses = [int(a) * size for a in rng.integers(0, 400, 32)]
    mask = int(rng.integers(1, WHOLE + 1))
    on = [lane for lane in range(32) if mask >> lane & 1]
    table = pictures.sector_table(addresses, mask, size)
    assert len(table) == rules.sectors(addresses, mask)
    found = {(s.number * 32 + byte, lane)
             for s in table for byte, lanes in s.lanes.items() for lane in lanes}  # fmt: skip
    assert found == {(addresses[n] + k, n) for n in on for k in range(size)}
    assert all(s.line == s.number // 4 for s in table)
    offsets = pictures.local_table(addresses, mask, size)
    assert len(offsets) == rules.local_sectors(addresses, mask, size)
    found = {(s.number * 32 + byte, lane)
             for s in offsets for byte, lanes in s.lanes.items() for lane in lanes}  # fmt: skip
    assert found == {((addresses[n] + k) // 4 * 128 + 4 * n + (addresses[n] + k) % 4, n)
                     for n in on for k in range(size)}  # fmt: skip


# -- pictures ----------------------------------------


@pytest.mark.parametrize("name", BANKS)
def test_bank_picture_draws_the_table(name):
    addresses, mask, size, load, waves, ideal = BANKS[name]
    table = pictures.bank_table([int(a) for a in addresses], mask, size, _operation(load))
    picture = bank(name)
    wavefronts = f"{waves} wavefront{'s' * (waves > 1)}, ideal {ideal}"
    assert any(text.startswith(wavefronts) for text in words(picture))
    assert wavefronts in picture.alt
    assert ("conflict" in picture.alt and "no bank conflict" not in picture.alt) == (waves > ideal)
    single, several = painted(picture, SKY), painted(picture, ORANGE)
    tops = sorted({y for _, y, _, _ in single + several})
    assert len(tops) == waves == len(table)
    for top, wavefront in zip(tops, table, strict=True):
        expected = {True: set(), False: set()}
        for at, (_, lanes) in wavefront.words.items():
            expected[len(lanes) > 1].add(at)
        assert {x for x, y, *_ in single if y == top} == expected[False]
        assert {x for x, y, *_ in several if y == top} == expected[True]


def test_lanes_are_named_in_their_words():
    texts = [text for text in words(bank("32-way")) if text.isdigit()]
    assert texts.count("17") == 3  # a bank, a wavefront, a lane
    assert "lanes 0–31" in words(bank("broadcast"))
    assert "0\n16" in words(bank("half a warp each"))


@pytest.mark.parametrize("name", SECTORS)
def test_sector_picture_draws_the_table(name):
    addresses, mask, size, moved, ideal, share, lines = SECTORS[name]
    picture = sector(name)
    where = f"in {lines} lines" if lines > 1 else "in one line"
    numbers = f"{moved} sector{'s' * (moved > 1)} {where}, ideal {ideal}, {share} % of the"
    assert any(text.startswith(numbers) for text in words(picture))
    assert numbers in picture.alt
    used, wasted = painted(picture, VERMILION), painted(picture, SKY)
    total = sum(width for *_, width, _ in used + wasted)
    assert sum(width for *_, width, _ in used) / total == pytest.approx(float(share) / 100, 0.01)
    (axes,) = picture.figure.axes
    inactive = 32 - mask.bit_count()
    hatched = [p for p in axes.patches if p.get_hatch() == "xxx" and p.get_width() == 1]
    assert len(hatched) == inactive
    slanted = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert len(slanted) == 32 - inactive  # from each active lane to its bytes


def test_local_memory_is_drawn_interleaved():
    same = pictures.local_picture([8] * 32, WHOLE, 4)
    assert "4 sectors in one line, ideal 4, 100 %" in same.alt
    apart = pictures.local_picture([4 * lane for lane in range(32)], WHOLE, 4)
    assert "32 sectors in 32 lines, ideal 4, 12.5 %" in apart.alt


@pytest.mark.parametrize("kind, name", [(bank, n) for n in BANKS] + [(sector, n) for n in SECTORS])
def test_words_are_large_enough_and_in_the_picture(kind, name):
    picture = kind(name, "float x = " + 20 * "a[i] + " + "0;\nwho executes it")
    canvas = FigureCanvasAgg(picture.figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    for text in picture.figure.axes[0].texts:
        box = text.get_window_extent(canvas.get_renderer())
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, text.get_text()
        assert text.get_fontsize() >= 8, text.get_text()


@pytest.mark.parametrize("kind, name", [(bank, "32-way"), (sector, "some lanes")])
def test_pictures_can_be_saved_and_say_what_they_show(kind, name):
    picture = kind(name, "the title;\nits second line")
    assert picture.alt.startswith("the title; its second line. ")
    data, metadata = picture._repr_mimebundle_()
    assert data["image/png"].startswith(b"\x89PNG")
    assert metadata["image/png"]["alt"] == picture.alt
    svg = io.BytesIO()
    picture.figure.savefig(svg, format="svg")
    assert b"<image" not in svg.getvalue()


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="31 addresses given"):
        pictures.bank_picture([0] * 31, WHOLE, 4, "load")
    with pytest.raises(ValueError, match="one or more of them active"):
        pictures.sector_picture([0] * 32, 0, 4)


# -- pictures of a launch ----------------------------------------


def of(kernel: str, n: int):
    m = np.ones((n, n), np.float32)
    return profile(KERNELS[kernel], m, m.copy(), 0 * m, n, n, n)


@pytest.fixture(scope="module")
def tiled():
    return of("tiled", 70)


def number(line: str, file: str = "02_tiled.cu", after: str = "") -> int:
    """The line of the source that holds some text."""
    text = (CUDA_FOLDER / file).read_text()
    return text[: text.index(line, text.index(after))].count("\n") + 1


def test_picture_of_a_tiled_kernels_accesses(tiled):
    a, b = number("sum += As[ty][k]"), number("* Bs[k][tx]")
    picture = tiled.picture(a, warp=3, which=5)
    assert picture.alt.startswith(f"02_tiled.cu:{a} sum += As[ty][k]; shared load (which=5 of 0")
    assert ".31), block (0, 0, 0), warp 3, iteration 0" in picture.alt
    assert "serves lanes 0–31 from bank 5." in picture.alt
    assert "serves lanes 0–31 from banks 0–31." in tiled.picture(b, block=(2, 2)).alt
    load = number("As[ty][tx] =")
    picture = tiled.picture(load, space="global", block=(0, 1, 0), warp=2, iteration=2)
    # Row 34, columns 64 to 69 of a matrix whose rows have 70 floats: from byte 9,776 on.
    assert "only lanes 0–5: 2 sectors in one line, ideal 1, 37.5 %" in picture.alt
    store = tiled.picture(load, operation="store", block=(0, 1, 0), warp=2, iteration=2)
    assert "Store of 4 bytes a lane in shared memory, all lanes" in store.alt


def test_picture_says_what_ptxas_makes_of_an_access(tiled):
    line = number("sum += As[ty][k]")
    assert "its neighbours one access of 16 bytes a lane" in tiled.picture(line).alt
    assert "ptxas fuses it with a neighbour" in tiled.picture(line, which=1).alt
    assert "ptxas" not in tiled.picture(number("* Bs[k][tx]")).alt


def test_pictures_of_naive_kernels():
    file, after = "01_naive.cu", "void matmul_naive_uncoalesced"
    line = number("sum += A", file, after)
    alt = of("naive_uncoalesced", 64).picture(line, iteration=3, which=1).alt
    assert "32 sectors in 32 lines, ideal 4, 12.5 %" in alt
    line = number("* B[", file)
    assert "4 sectors in one line, ideal 4, 100 %" in of("naive", 64).picture(line).alt


def test_what_is_not_on_the_line_or_not_in_the_launch(tiled):
    line, load = number("sum += As[ty][k]"), number("As[ty][tx] =")
    for message, wrong in {
        "no access to memory was executed on line 1, only on ": {"line": 1},
        f'line {load} has several kinds of access; write which one: space="global", '
        'operation="load" (1), space="shared", operation="store" (1)': {"line": load},
        f'line {line} has no local access, but space="shared", operation="load" (32)': {
            "line": line, "space": "local"},
        "which=32: line": {"line": line, "which": 32},
        "which=-1: line": {"line": line, "which": -1},
        "block=(3, 0) is outside of the grid of (3, 3, 1) blocks": {"line": line, "block": (3, 0)},
        "warp=32: blocks of (32, 32, 1) threads have 32 warps, 0..31": {"line": line, "warp": 32},
        f"iteration=3: warp 0 of block (0, 0, 0) executes this shared load (which=0 of 0..31) of "
        f"line {line} 3 times: iteration is 0..2": {"line": line, "iteration": 3},
        f"iteration=0: warp 9 of block (0, 2, 0) executes this global load of line {load} not "
        "once": {"line": load, "space": "global", "block": (0, 2), "warp": 9},
        "space='texture' is none of": {"line": line, "space": "texture"},
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(message)):
            tiled.picture(**wrong)


def test_a_block_that_waits_for_others():
    source = """__global__ void chain(volatile int *turn, int *out) {
        while (turn[0] != blockIdx.x) {}
        out[blockIdx.x * 32 + threadIdx.x] = 1;
        __syncthreads();
        if (threadIdx.x == 0) turn[0] = blockIdx.x + 1;
    }"""
    turn, out = np.zeros(1, np.int32), np.zeros(96, np.int32)
    p = profile((source, "chain"), turn, out, grid=3, block=32)
    assert "4 sectors in one line, ideal 4, 100 %" in p.picture(3, block=(2,)).alt


@pytest.mark.parametrize("kernel", ["naive", "naive_uncoalesced", "tiled"])
def test_the_accesses_of_all_warps_add_up_to_the_profile(kernel):
    p = of(kernel, 36)
    run = p._replica.prepare()
    for access in p._counts.accesses[::9]:
        ((space, cost),) = access.costs.items()
        units, requests = 0, 0
        who = [(block, warp) for block in np.ndindex(p.grid) for warp in range(32)]
        for block, warp in who:
            for iteration in count():
                try:
                    found = run.function.trace(
                        *run.launch, ptx_line=access.instruction.ptx_line, of_block=block,
                        warp=warp, iteration=iteration)  # fmt: skip
                except NotReached:
                    break
                where = found.addresses, found.mask
                requests += 1
                if space == "shared":
                    load = access.operation == "load"
                    units += rules.wavefronts(*where, found.size, load)[0]
                else:
                    units += rules.sectors(*where)
        assert (requests, units) == (cost.requests, cost.units)


ATOMICS = """\
__global__ void atomics(int *out)
{
    __shared__ int s[64];
    s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(s + threadIdx.x / 8 * 32, 1);
    atomicAdd(out + threadIdx.x / 8, 1);
}
"""


def test_an_atomic_operation_serves_lanes_one_after_the_other():
    p = profile((ATOMICS.replace("/ 8 * 32", "/ 16 * 32"), "atomics"), np.zeros(32, np.int32),
                grid=1, block=32)  # fmt: skip
    assert p.line(6).traffic[0].wavefronts == 32
    alt = p.picture(6).alt
    assert "Atomic operation of 4 bytes a lane" in alt and "32 wavefronts, ideal 1" in alt
    assert "Wavefront 0 serves lane 0 from bank 0. Wavefront 1 serves lane 1 from bank 0." in alt
    assert p.line(7).traffic[0].sectors == 8
    assert "8 sectors are counted" in p.picture(7).alt


@pytest.mark.parametrize("size", [4, 8])
def test_the_wavefronts_of_atomics_are_those_of_the_rules(size):
    random = np.random.default_rng(size)
    for _ in range(50):
        addresses = [int(a) for a in size * random.integers(0, 60, 32)]
        mask = int(random.integers(1, WHOLE))
        table = pictures.bank_table(addresses, mask, size, "atomic")
        assert (len(table), 1) == rules.atomic_wavefronts(addresses, mask, size)
        served = sorted(lane for wavefront in table for lane in wavefront.lanes)
        assert served == rules.active(mask)


COPIES = r"""
__global__ void copies(const float *a, float *out, int n)
{
    __shared__ __align__(128) float s[256];
    unsigned to = __cvta_generic_to_shared(s + 4 * threadIdx.x), x;
    #pragma unroll 1
    for (int k = 0; k < n; ++k)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :: "r"(to), "l"(a + 4 * threadIdx.x + 4 * k));
    asm volatile("cp.async.wait_all;");
    unsigned row = __cvta_generic_to_shared(s + 32 * (threadIdx.x % 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(row));
    out[threadIdx.x] = x;
}
"""


def test_copies_and_matrix_loads():
    a, out = np.zeros(256, np.float32), np.zeros(32, np.float32)
    p = profile((COPIES, "copies"), a, out, np.int32(3), grid=1, block=32)
    copy = next(line.number for line in p.lines if any(t.operation == "copy" for t in line.traffic))
    assert p.total("global", "copy").sectors == 16 + 32 + 16
    assert "16 sectors in 4 lines" in p.picture(copy).alt
    shifted = p.picture(copy, iteration=1).alt
    assert "17 sectors in 5 lines" in shifted and "counts anew" in shifted
    (matrix,) = (t for t in p.line(12).traffic if t.operation == "matrix")
    assert (matrix.wavefronts, matrix.ideal_wavefronts, matrix.bytes) == (8, 1, 128)
    alt = p.picture(12).alt
    assert "Load of matrix rows of 16 bytes a lane in shared memory, only lanes 0–7" in alt
    assert "8 wavefronts, ideal 1" in alt


@pytest.mark.parametrize(
    "wrong",
    [{"line": 38.5}, {"line": 38.0}, {"iteration": 0.5}, {"which": None}, {"warp": "0"},
     {"block": (0, 0.5)}, {"block": None}, {"warp": True}],
    ids=str,
)  # fmt: skip
def test_what_is_no_number(tiled, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(TypeError, match=re.escape(f"{name}={value!r}: write integers")):
        tiled.picture(**({"line": number("sum += As[ty][k]")} | wrong))
