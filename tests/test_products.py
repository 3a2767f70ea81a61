"""A kernel by name, by its Kernel, or by that of a `%%cuda` cell."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from helpers import predict as predictions
from helpers.benchmark import time_product, times_of
from helpers.bound import bind_all
from helpers.kernels import KERNELS, tiled
from helpers.occupancy import occupancy
from helpers.predict import predict
from helpers.products import product


def cell(folder: Path, source: str, **shape: Any) -> Any:
    """The kernel of a cell, as %%cuda makes it."""
    file = folder / "mine.cu"
    file.write_text(source)
    ((_, kernel),) = bind_all(source, file, **shape)[0].items()
    return kernel


TILED = KERNELS["tiled"].file.read_text(encoding="utf-8")


def test_names_and_kernels_are_products() -> None:
    assert product("naive") is KERNELS["naive"]
    assert product("padded_8") == tiled(8, "padded")
    own = dataclasses.replace(KERNELS["tiled"], name="mine")
    assert product(own) is own


@pytest.mark.parametrize(("wrong", "error", "message"), [
    ("tilde", ValueError, "no kernel 'tilde': write naive, naive_uncoalesced, tiled,"),
    ("naive_16", ValueError, "no kernel 'naive_16'"),
    ("tiled_64", ValueError, "64² threads"),
    (None, TypeError, "None is no kernel of a product: give a name such as 'tiled'"),
    (("a.cu", "b"), TypeError, "is no kernel of a product"),
])  # fmt: skip
def test_what_is_none_is_told(wrong: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        product(wrong)


def test_the_kernel_of_a_cell_is_timed_and_predicted(autoinit: Any, tmp_path: Path) -> None:
    mine = cell(tmp_path, TILED, block=(32, 32))
    assert product(mine).name == "matmul_tiled"
    assert time_product(mine, 40, 30, 20, seconds=0.01).median_ms > 0
    assert list(times_of([mine, "naive"], 32, seconds=0.01)) == ["matmul_tiled", "naive"]
    theirs = predict("tiled", 512, 512, 512, "A100")
    assert predict(mine, 512, 512, 512, "A100").ms == theirs.ms
    assert occupancy(mine, (9, 0)).blocks == occupancy("tiled", (9, 0)).blocks == 2


def test_a_cell_that_is_no_product_or_was_changed_is_told(autoinit: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="kernel f is no product: its signature is not"):
        product(cell(tmp_path, "__global__ void f(float *x) { x[0] = 1; }", block=(32, 1)))
    with pytest.raises(TypeError, match="kernel matmul_tiled has no block: write %%cuda"):
        product(cell(tmp_path, TILED))
    mine = cell(tmp_path, TILED, block=(32, 32))
    mine.file.write_text("// another cell of that name")
    with pytest.raises(ValueError, match="mine.cu is not what was compiled: run its cell again"):
        product(mine)
    mine.file.unlink()
    with pytest.raises(ValueError, match="is not what was compiled"):
        product(mine)


def test_an_edited_file_is_counted_anew(autoinit: Any, tmp_path: Path) -> None:
    file = tmp_path / "edited.cu"
    file.write_text(TILED)
    own = dataclasses.replace(KERNELS["tiled"], name="own", file=file)
    before = predictions.work(own, 128)
    file.write_text(TILED.replace("sum +=", "sum += sum +"))
    assert predictions.work(own, 128).chain > before.chain
