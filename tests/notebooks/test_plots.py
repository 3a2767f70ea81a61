"""The pictures show the indices that the kernels compute."""

import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from helpers import plots
from helpers.show import show

SIZES = {"M": 100, "N": 70, "K": 90}


def kernel_indices(file: str, function: str, names: dict) -> dict:
    """The kernel's own index expressions, evaluated: its `int` variables, and A, B and C."""
    code = "\n".join(re.sub(r"//.*", "", line) for line in show(file, function).lines)
    code = code.replace("(size_t)", "").replace("&&", "&")
    names = dict(names)
    for variable, value in re.findall(r"^ +int (\w+) = ([^;]+);", code, re.MULTILINE):
        names[variable] = eval(value, {}, names)
    for array in "ABC":
        (index,) = re.findall(rf"\b{array}\[([^\]]+)\]", code)
        names[array] = eval(index, {}, names) + 0 * names["threadIdx"].x
    return names


def threads(width: int, height: int, block: tuple[int, int]) -> dict:
    """threadIdx of a whole block as arrays, and the block's own values."""
    y, x = np.mgrid[0:height, 0:width]
    return {"threadIdx": SimpleNamespace(x=x, y=y),
            "blockIdx": SimpleNamespace(x=block[0], y=block[1]),
            "blockDim": SimpleNamespace(x=width, y=height)}


@pytest.mark.parametrize("kernel", ["naive", "naive_uncoalesced"])
@pytest.mark.parametrize("warp, k", [(0, 0), (0, 3), (5, 17)])
def test_warp_loads_are_those_of_the_kernel(kernel, warp, k):
    names = threads(32, 32, (0, 0)) | SIZES | {"k": k}
    real = kernel_indices("01_naive.cu", f"matmul_{kernel}", names)
    drawn = plots.warp_loads(kernel, N=SIZES["N"], K=SIZES["K"], k=k, warp=warp)
    for array in "AB":
        assert (drawn[array] == real[array][warp]).all()


@pytest.mark.parametrize("tile", [4, 16, 32])
@pytest.mark.parametrize("block, step", [((0, 0), 0), ((2, 1), 0), ((1, 2), 2)])
def test_tile_loads_are_those_of_the_kernel(tile, block, step):
    names = threads(tile, tile, block) | SIZES | {"TILE": tile, "k0": step * tile}
    real = kernel_indices("02_tiled.cu", "matmul_tiled", names)
    width = {"A": SIZES["K"], "B": SIZES["N"], "C": SIZES["N"]}
    for array, (rows, columns) in plots.tile_loads(tile, block, step).items():
        assert (rows * width[array] + columns == real[array]).all()


def test_sectors_agree_with_the_hardware_counters_of_an_h200():
    measured = {"naive": 167_772_160, "naive_uncoalesced": 1_107_296_256}  # n = 1024
    n = 1024
    for kernel, sectors in measured.items():
        loads = plots.warp_loads(kernel, N=n, K=n)
        per_step = plots.sectors(loads["A"]) + plots.sectors(loads["B"])
        assert per_step * n * (n * n // 32) == sectors


def painted(axes, color: str) -> set[tuple[float, float]]:
    """Row and column of the unit squares whose top colour this is."""
    top = {(p.get_y(), p.get_x()): to_hex(p.get_facecolor()).upper() for p in axes.patches
           if (p.get_width(), p.get_height()) == (1, 1) and p.get_facecolor()[3]}
    return {place for place, shade in top.items() if shade == color}


@pytest.mark.parametrize("M, N, K, block, step", [
    (8, 12, 12, (1, 1), 1), (7, 10, 11, (1, 1), 2), (7, 10, 11, (2, 0), 0), (8, 8, 8, (0, 1), 1)])
def test_tiled_step_paints_the_loaded_elements_and_no_others(M, N, K, block, step):
    picture = plots.tiled_step(M, N, K, 4, block, step, thread=(0, 0))
    (axes,) = picture.figure.axes
    loads = plots.tile_loads(4, block, step)
    shapes = {"A": (M, K), "B": (K, N)}
    inside = sum(int(((rows < shapes[name][0]) & (columns < shapes[name][1])).sum())
                 for name, (rows, columns) in loads.items() if name in shapes)
    used = painted(axes, plots.VERMILION)
    key = 2  # the squares of the key in the corner
    assert len(painted(axes, plots.ORANGE)) + len(used) - 1 == inside + key
    assert ("filled with zeros" in picture.alt) == (inside < 32)


def test_thread_mapping_hatches_the_threads_without_an_element():
    picture = plots.thread_mapping(M=6, N=10, block=(4, 4))
    (axes,) = picture.figure.axes
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert len(hatched) == 36
    assert all(patch.get_y() >= 6 or patch.get_x() >= 10 for patch in hatched)


def test_thread_mapping_without_idle_threads_hatches_nothing():
    (axes,) = plots.thread_mapping(M=8, N=8, block=(4, 4)).figure.axes
    assert not any(patch.get_hatch() for patch in axes.patches)


@pytest.mark.parametrize("picture", [plots.thread_mapping, plots.coalescing, plots.tiled_step])
def test_pictures_are_wide_enough_for_a_projector_and_small_enough_for_git(picture):
    drawn = picture()
    data, metadata = drawn._repr_mimebundle_()
    width, height = Image.open(io.BytesIO(data["image/png"])).size
    assert width >= 1400 and height <= 1.2 * width
    assert len(data["image/png"]) < 80_000
    assert metadata["image/png"]["alt"] == drawn.alt == data["text/plain"]


def test_the_picture_of_the_readme_is_the_drawing_of_today():
    from tests.notebooks.regenerate import README_PICTURE, readme_picture

    drawn = np.asarray(Image.open(io.BytesIO(readme_picture().png())).convert("RGB"), int)
    committed = np.asarray(Image.open(README_PICTURE).convert("RGB"), int)
    assert abs(drawn.shape[0] - committed.shape[0]) <= 2
    if drawn.shape == committed.shape:  # another matplotlib may draw letters a little differently
        assert (np.abs(drawn - committed).max(axis=2) > 64).mean() < 0.02


def test_an_unknown_kernel_has_no_picture():
    with pytest.raises(ValueError, match="use 'naive'"):
        plots.warp_loads("tiled", N=8, K=8)
