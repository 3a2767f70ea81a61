"""cuBLAS: row-major products, true FP32, and plain words where it cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cublas import FakeCublas

from helpers import cublas
from helpers.check import check_product
from helpers.cublas import Cublas, NoCublas
from helpers.memory import allocate, upload


@pytest.fixture
def on_cpu(autoinit: Any) -> None:
    if autoinit.backend != "cpu":
        pytest.skip("the fake cuBLAS reads the CPU driver's memory")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("size", [(1, 1, 1), (2, 3, 5), (35, 19, 79), (64, 64, 64)])
def test_the_product_is_row_major(size: tuple[int, int, int]) -> None:
    M, N, K = size
    random = np.random.default_rng(1)
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    with Cublas(FakeCublas()) as blas, upload(A) as dA, upload(B) as dB, allocate((M, N)) as dC:
        blas.launch(dA, dB, dC, M, N, K)
        assert check_product(dC.download(), A, B)


@pytest.mark.usefixtures("on_cpu")
def test_the_mode_is_fp32_and_the_handle_is_given_back() -> None:
    import pycuda.driver as cuda

    library = FakeCublas()
    with Cublas(library) as blas, allocate((4, 4), fill=1) as dA, allocate((4, 4)) as dC:
        assert library.mode == 0  # CUBLAS_DEFAULT_MATH
        assert blas.version == "13.1.2"
        with allocate((4, 4), fill=1) as dB:
            blas.launch(dA, dB, dC, 4, 4, 4)
            assert library.stream is None
            stream = cuda.Stream()
            blas.launch(dA, dB, dC, 4, 4, 4, stream)
            assert library.stream == stream.handle
            assert (dC.download() == 4).all()
    assert library.calls[-1] == "cublasDestroy_v2"
    blas.close()
    assert library.calls.count("cublasDestroy_v2") == 1
    with allocate((1, 1)) as d, pytest.raises(NoCublas, match="was closed"):
        blas.launch(d, d, d, 1, 1, 1)


@pytest.mark.usefixtures("on_cpu")
def test_arguments_are_checked_as_a_kernels() -> None:
    with Cublas(FakeCublas()) as blas, allocate((4, 4), fill=1) as dA, allocate((4, 4)) as dC:
        with pytest.raises(ValueError, match="dC is the same memory"):
            blas.launch(dA, dC, dC, 4, 4, 4)
        with pytest.raises(ValueError, match="dB has shape"):
            blas.launch(dA, dA, dC, 4, 5, 4)
        with pytest.raises(TypeError, match="dA is a NumPy array"):
            blas.launch(np.ones((4, 4), np.float32), dA, dC, 4, 4, 4)


@pytest.mark.usefixtures("on_cpu")
def test_what_fails_says_which_call_and_why() -> None:
    library = FakeCublas({"cublasSetMathMode": 7})
    with pytest.raises(NoCublas, match=r"cublasSetMathMode failed: invalid value \(7\)"):
        Cublas(library)
    assert library.calls[-1] == "cublasDestroy_v2"
    with pytest.raises(NoCublas, match=r"not initialized \(1\)"):
        Cublas(FakeCublas({"cublasCreate_v2": 1}))


@pytest.mark.usefixtures("on_cpu")
def test_an_emulation_of_fp32_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "1")
    with pytest.raises(NoCublas, match="unset it"):
        Cublas(FakeCublas())
    monkeypatch.setenv("CUBLAS_EMULATE_SINGLE_PRECISION", "0")
    Cublas(FakeCublas()).close()


@pytest.mark.usefixtures("on_cpu")
def test_the_cpu_driver_cannot_run_it() -> None:
    with pytest.raises(NoCublas, match="machine code for a GPU, and this is the CPU driver"):
        Cublas()


def test_wheels_and_the_toolkit_are_looked_at_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("nvidia/cu13/lib/libcublas.so.13", "nvidia/cublas/lib/libcublas.so.12",
                 "nvidia/cu13/lib/libcublasLt.so.13"):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("not a library")
    monkeypatch.setattr(cublas.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(cublas.toolkit, "find_toolkit", lambda: None)
    monkeypatch.setattr(cublas.ctypes.util, "find_library", lambda name: None)
    assert [str(f.relative_to(tmp_path)) for f in cublas.candidates()] == [
        "nvidia/cu13/lib/libcublas.so.13", "nvidia/cublas/lib/libcublas.so.12"
    ]  # fmt: skip
    monkeypatch.setattr(cublas, "backend", lambda: "gpu")
    monkeypatch.setattr(cublas.toolkit, "driver_version", lambda: (12, 4))
    with pytest.raises(NoCublas, match=r"so.13 is for CUDA 13, the driver for 12; .*so.12"):
        cublas._load()
    monkeypatch.setattr(cublas.sys, "path", [])
    with pytest.raises(NoCublas, match="no libcublas was found.*pip install"):
        cublas._load()


def test_on_a_gpu_it_computes_in_fp32(autoinit: Any) -> None:
    if autoinit.backend == "cpu":
        pytest.skip("cuBLAS needs a GPU")
    random = np.random.default_rng(1)
    A = random.standard_normal((301, 530), dtype=np.float32)
    B = random.standard_normal((530, 417), dtype=np.float32)
    try:
        blas = Cublas()
    except NoCublas as error:
        pytest.skip(str(error))
    with blas, upload(A) as dA, upload(B) as dB, allocate((301, 417)) as dC:
        blas.launch(dA, dB, dC, 301, 417, 530)
        assert check_product(dC.download(), A, B)  # inputs rounded to TF32 would fail
