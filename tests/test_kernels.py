"""The kernels: the bits they compute, at every kind of edge, and what they refuse."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from oracle import fma_product

from helpers.check import check_product
from helpers.kernels import BY_TILE, KERNELS, MAX_GRID_Y, MAX_SIZE, Kernel, pipelined, tiled
from helpers.memory import allocate, upload
from helpers.sandbox import CompileFailed

Matrix = NDArray[np.float32]

# (M, N, K)
SIZES = [
    *((n, n, n) for n in (1, 31, 32, 33, 200, 1000, 1024)),
    (35, 19, 79),
    (1, 3, 500),
    (257, 129, 1),
    (1, 1, 33),
    (33, 1, 1),
    (1, 33, 65),
    (64, 96, 31),
]
VARIANTS = [
    *BY_TILE.values(),  # the others: tests/test_best.py
    *(tiled(size) for size in (16, 8, 5, 1)),
    *(tiled(size, name) for name in ("tiled_conflict", "padded", "swizzled") for size in (16, 2)),
]
WIDE = ["vectorized", "warp_tile", "double_buffered", "pipelined"]  # move four floats at a time
EVERY_KERNEL = pytest.mark.parametrize("kernel", VARIANTS, ids=lambda kernel: kernel.name)


def bits(matrix: Matrix) -> NDArray[np.uint32]:
    return matrix.view(np.uint32)


def ones(*shape: int) -> Matrix:
    return np.ones(shape, np.float32)


def test_the_table_has_the_kernels_of_the_lessons_in_their_order() -> None:
    assert list(KERNELS) == [
        "naive", "naive_uncoalesced", "tiled", "tiled_conflict", "padded", "swizzled",
        "register_column", "register_tile", "vectorized", "warp_tile", "double_buffered",
        "pipelined", "best",
    ]  # fmt: skip
    lessons = [kernel.lesson for kernel in KERNELS.values()]
    assert lessons == [1, 1, 2, 3, 3, 3, 6, 6, 7, 7, 8, 8, 9]
    for name, kernel in KERNELS.items():
        assert kernel.name == name
        assert f" {kernel.entry}(const float *A" in kernel.file.read_text().replace("\n", " ")
        assert kernel.file.name.startswith(f"{kernel.lesson:02}_")


@functools.cache
def inputs_and_chain(M: int, N: int, K: int) -> tuple[Matrix, Matrix, Matrix]:
    random = np.random.default_rng((M, N, K))
    A = random.standard_normal((M, K), dtype=np.float32)
    B = random.standard_normal((K, N), dtype=np.float32)
    return A, B, fma_product(A, B)


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize(
    ("size", "kernel"),
    [
        pytest.param(size, kernel, id=f"{'x'.join(map(str, size))}-{kernel.name}")
        for size in SIZES
        for kernel in VARIANTS
        if max(size) < 1000 or kernel.tile >= (16, 16)  # a block of few threads is slow
    ],
)
def test_the_result_is_the_chain_of_fmas_bit_for_bit(
    size: tuple[int, int, int], kernel: Kernel
) -> None:
    A, B, expected = inputs_and_chain(*size)
    C = kernel(A, B)
    assert (C.shape, C.dtype) == (size[:2], np.float32)
    assert np.array_equal(bits(C), bits(expected))


PIPELINES = [
    *(KERNELS[name] for name in ("double_buffered", "pipelined")),
    *(pipelined(stages) for stages in (2, 3, 5)),
]


@pytest.mark.usefixtures("autoinit")
@pytest.mark.parametrize("K", [1, 5, 8, 15, 16, 17, 24, 32, 33, 48, 64, 80, 96, 112, 128])
@pytest.mark.parametrize("kernel", PIPELINES, ids=lambda kernel: kernel.name)
def test_any_number_of_tiles_along_k_goes_through_a_pipeline(kernel: Kernel, K: int) -> None:
    """K smaller than a tile, fewer tiles than stages, odd and even numbers of them; with whole
    blocks and ragged ones, with rows that can be copied by float4 and not."""
    for M, N in ((132, 260), (3, 257)):
        A, B, expected = inputs_and_chain(M, N, K)
        assert np.array_equal(bits(kernel(A, B)), bits(expected)), (M, N)


@pytest.mark.parametrize("stages", [1, 0, -2, 2.0])
def test_a_pipeline_has_at_least_two_stages(stages: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="stages="):
        pipelined(stages)


@pytest.mark.usefixtures("autoinit")
class TestEdges:
    @EVERY_KERNEL
    def test_infinity_spreads_along_its_row_and_column_only(self, kernel: Kernel) -> None:
        """Zero fill multiplies zeros of A only by zeros of B: 0 * inf would be NaN."""
        A, B = ones(33, 35), ones(35, 34)
        A[32, 34] = np.inf
        B[34, 33] = -np.inf
        C = kernel(A, B)
        assert (C[:32, :33] == 35).all()
        assert (C[32, :33] == np.inf).all()
        assert (C[:, 33] == -np.inf).all()  # the corner too: inf * -inf

    @EVERY_KERNEL
    def test_nan_spreads_along_its_row_only(self, kernel: Kernel) -> None:
        A, B = ones(33, 35), ones(35, 34)
        A[31, 0] = np.nan
        C = kernel(A, B)
        assert np.isnan(C[31]).all()
        assert (np.delete(C, 31, axis=0) == 35).all()

    def test_only_the_sign_of_an_underflow_to_zero_differs_after_zero_fill(self) -> None:
        """-1e-30 * 1e-30 rounds to -0, and the tiled kernel goes on to add 0 * 0 to it: +0."""
        A, B = np.full((1, 1), -1e-30, np.float32), np.full((1, 1), 1e-30, np.float32)
        assert bits(KERNELS["naive"](A, B))[0, 0] == 0x8000_0000
        assert bits(KERNELS["tiled"](A, B))[0, 0] == 0
        A, B = np.repeat(A, 32, axis=1), np.repeat(B, 32, axis=0)  # nothing to fill
        assert bits(KERNELS["tiled"](A, B))[0, 0] == bits(KERNELS["naive"](A, B))[0, 0]

    @EVERY_KERNEL
    def test_subnormal_numbers_are_not_flushed(self, kernel: Kernel) -> None:
        A = np.full((2, 3), 1e-20, np.float32)
        B = np.full((3, 2), 1e-20, np.float32)
        assert np.array_equal(bits(kernel(A, B)), bits(fma_product(A, B)))
        assert (kernel(A, B) > 0).all()

    @EVERY_KERNEL
    def test_nothing_but_c_is_written(self, kernel: Kernel) -> None:
        M, N, K = 33, 35, 40
        A, B = ones(M, K), ones(K, N)
        with upload(A) as dA, upload(B) as dB, allocate((M + 70) * N, fill=7) as dC:
            kernel.launch(dA, dB, dC, M, N, K)
            C = dC.download()
            assert np.array_equal(dA.download(), A)
            assert np.array_equal(dB.download(), B)
        assert (C[: M * N] == K).all()
        assert (C[M * N :] == 7).all()

    @pytest.mark.parametrize(
        "block", [(1, 1, 1), (7, 3, 1), (1024, 1, 1), (1, 1024, 1), (16, 4, 1)]
    )
    @pytest.mark.parametrize("name", ["naive", "naive_uncoalesced"])
    def test_the_naive_kernels_take_any_block(self, name: str, block: tuple[int, int, int]) -> None:
        kernel = KERNELS[name]
        tile = block[:2] if kernel.rows_on_x else (block[1], block[0])
        A, B, expected = inputs_and_chain(45, 70, 20)
        C = dataclasses.replace(kernel, block=block, tile=tile)(A, B)
        assert np.array_equal(bits(C), bits(expected))

    def test_the_longest_grid_works(self) -> None:
        M = MAX_GRID_Y * 32
        A = np.arange(M, dtype=np.float32).reshape(M, 1)
        B = np.full((1, 1), 2, np.float32)
        assert np.array_equal(KERNELS["naive"](A, B), 2 * A)

    def test_read_only_and_unaligned_arrays_are_fine(self) -> None:
        A, B = ones(5, 6), ones(6, 7)
        A.flags.writeable = False
        raw = np.zeros(B.nbytes + 1, np.uint8)
        odd = raw[1:].view(np.float32).reshape(6, 7)
        odd[:] = B
        assert (KERNELS["tiled"](A, odd) == 6).all()

    @pytest.mark.parametrize("size", [(130, 132, 20), (40, 30, 18), (33, 260, 41)], ids=str)
    @pytest.mark.parametrize("shifted", ["A", "B", "C", "ABC"])
    @pytest.mark.parametrize("name", WIDE)
    def test_matrices_need_not_begin_at_a_multiple_of_16_bytes(
        self, name: str, shifted: str, size: tuple[int, int, int]
    ) -> None:
        """Each matrix lies in memory with one word before it if shifted, and words behind it."""
        M, N, K = size
        A, B, expected = inputs_and_chain(M, N, K)
        first = {matrix: int(matrix in shifted) for matrix in "ABC"}
        words = {matrix: np.full(M * N + M * K + K * N, 7, np.float32) for matrix in "ABC"}
        words["A"][first["A"] :][: M * K] = A.ravel()
        words["B"][first["B"] :][: K * N] = B.ravel()
        with upload(words["A"]) as dA, upload(words["B"]) as dB, upload(words["C"]) as dC:
            starts = [int(d) + 4 * first[m] for m, d in zip("ABC", (dA, dB, dC), strict=True)]
            KERNELS[name].launch(*starts, M, N, K)
            C = dC.download()
        inside = slice(first["C"], first["C"] + M * N)
        assert np.array_equal(bits(C[inside]), bits(expected.ravel()))
        assert (np.delete(C, inside) == 7).all()

    @pytest.mark.parametrize("K", [8, 20, 21, 22, 23])
    @pytest.mark.parametrize("N", [128, 132, 133, 134, 135, 260])
    @pytest.mark.parametrize("name", WIDE)
    def test_rows_of_any_length_are_right(self, name: str, N: int, K: int) -> None:
        """Lengths that are a multiple of 4 and not of the tile, and each remainder of 4."""
        A, B, expected = inputs_and_chain(129, N, K)
        assert np.array_equal(bits(KERNELS[name](A, B)), bits(expected))

    def test_integers_of_numpy_and_raw_addresses_can_be_launched(self) -> None:
        A, B = ones(200, 4), ones(4, 50)
        sizes = np.uint8(200), np.int32(50), np.int8(4)
        with upload(A) as dA, upload(B) as dB, allocate((200, 50)) as dC:
            KERNELS["naive"].launch(dA.gpudata, np.uint64(int(dB)), dC._allocation, *sizes)
            assert (dC.download() == 4).all()
        with upload(A.ravel()) as dA, upload(B) as dB, allocate(200 * 50) as dC:
            KERNELS["naive"].launch(dA, dB, dC, *sizes)  # 200 * 50 is more than a uint8 holds
            assert (dC.download() == 4).all()

    def test_a_launcher_queues_the_product_each_time_it_is_called(self) -> None:
        A, B, _ = inputs_and_chain(40, 70, 24)
        for name in ("tiled", "best"):
            with upload(A) as dA, upload(B) as dB, allocate((40, 70), fill=7) as dC:
                queue = KERNELS[name].launcher(dA, dB, dC, 40, 70, 24)
                assert (dC.download() == 7).all()  # nothing yet
                for _ in range(2):
                    queue()
                    assert check_product(dC.download(), A, B)
                    dC.fill(7)
                with pytest.raises(ValueError, match="K=0"):
                    KERNELS[name].launcher(dA, dB, dC, 40, 70, 0)

    def test_gpuarrays_of_pycuda_can_be_launched(self) -> None:
        from pycuda import gpuarray

        dA, dB = gpuarray.to_gpu(ones(3, 4)), gpuarray.to_gpu(ones(4, 5))
        dC = gpuarray.empty((3, 5), np.float32)
        KERNELS["tiled"].launch(dA, dB, dC, 3, 5, 4)
        assert (dC.get() == 4).all()
        with pytest.raises(ValueError, match="dA is not C-contiguous"):
            KERNELS["tiled"].launch(dA.T, dB, dC, 4, 5, 3)

    def test_a_stream_can_be_given(self, autoinit: Any) -> None:
        import pycuda.driver as cuda

        stream = cuda.Stream()
        with upload(ones(40, 50)) as dA, upload(ones(50, 60)) as dB, allocate((40, 60)) as dC:
            KERNELS["tiled"].launch(dA, dB, dC, 40, 60, 50, stream=stream)
            stream.synchronize()
            assert (dC.download() == 50).all()


@pytest.mark.usefixtures("autoinit")
class TestCompilation:
    def test_a_function_is_compiled_once(self) -> None:
        assert KERNELS["tiled"].function() is not None
        first = KERNELS["tiled"].source
        assert KERNELS["tiled"].source is first

    def test_an_edited_file_is_compiled_again(self, tmp_path: Path) -> None:
        file = tmp_path / "edited.cu"
        text = KERNELS["naive"].file.read_text()
        file.write_text(text)
        kernel = dataclasses.replace(KERNELS["naive"], file=file)
        assert (kernel(ones(2, 3), ones(3, 2)) == 3).all()
        file.write_text(text.replace("float sum = 0.0f;", "float sum = 10.0f;"))
        assert (kernel(ones(2, 3), ones(3, 2)) == 13).all()

    def test_a_compile_error_names_the_file_and_its_own_line(self, tmp_path: Path) -> None:
        file = tmp_path / "broken.cu"
        text = KERNELS["naive"].file.read_text()
        file.write_text(text.replace("float sum = 0.0f;", "float sum = nothing;", 1))
        line = 1 + file.read_text().split("float sum = nothing")[0].count("\n")
        with pytest.raises(CompileFailed, match=rf"broken\.cu\({line}\): error"):
            dataclasses.replace(KERNELS["naive"], file=file).function()

    def test_options_reach_the_compiler(self) -> None:
        assert tiled(8).function().shared_size_bytes == 2 * 8 * 8 * 4
        assert KERNELS["tiled"].function().shared_size_bytes == 2 * 32 * 32 * 4

    def test_only_padding_costs_shared_memory(self) -> None:
        sizes = [
            KERNELS[name].function().shared_size_bytes
            for name in ("tiled_conflict", "padded", "swizzled")
        ]
        assert sizes == [8192, 8192 + 32 * 4, 8192]

    def test_a_swizzle_that_would_leave_the_tile_does_not_compile(self) -> None:
        with pytest.raises(CompileFailed, match="only for a power of two"):
            tiled(5, "swizzled").function()

    def test_dynamic_shared_memory_reaches_the_launch(self, tmp_path: Path) -> None:
        file = tmp_path / "dynamic.cu"
        file.write_text(
            "__global__ void dynamic(const float *A, const float *B, float *C,"
            " int M, int N, int K)\n"
            "{\n    extern __shared__ float s[];\n    s[threadIdx.x] = A[threadIdx.x];\n"
            "    __syncthreads();\n    C[threadIdx.x] = s[K - 1 - threadIdx.x];\n}\n"
        )
        kernel = Kernel("dynamic", file, "dynamic", 9, (8, 1, 1), (1, 8), shared_bytes=32)
        with upload(np.arange(8, dtype=np.float32)) as dA, allocate(64) as dB, allocate(8) as dC:
            kernel.launch(dA, dB, dC, 1, 8, 8)
            assert dC.download().tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


class TestGrid:
    def test_the_grid_covers_c(self) -> None:
        assert KERNELS["naive"].grid(1, 1) == (1, 1, 1)
        assert KERNELS["naive"].grid(33, 64) == (2, 2, 1)
        assert KERNELS["tiled"].grid(33, 65) == (3, 2, 1)
        assert KERNELS["naive_uncoalesced"].grid(33, 65) == (2, 3, 1)
        assert tiled(16).grid(33, 65) == (5, 3, 1)

    def test_more_blocks_than_a_grid_has_are_an_error(self) -> None:
        rows = MAX_GRID_Y * 32 + 1
        with pytest.raises(ValueError, match=r"65,536 blocks along y.*keep M <= 2,097,120"):
            KERNELS["tiled"].grid(rows, 1)
        assert KERNELS["naive_uncoalesced"].grid(rows, 1)[0] == 65536
        with pytest.raises(ValueError, match=r"65,536 blocks along y.*keep N <= 2,097,120"):
            KERNELS["naive_uncoalesced"].grid(1, rows)
        assert KERNELS["tiled"].grid(1, rows)[0] == 65536

    @pytest.mark.parametrize("size", [0, -1, 2**31, 1.0, None, True])
    def test_what_is_no_size_is_an_error(self, size: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="M="):
            KERNELS["naive"].grid(size, 1)
        with pytest.raises((TypeError, ValueError), match="N="):
            KERNELS["naive"].grid(1, size)

    def test_a_kernel_cannot_be_changed(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            KERNELS["naive"].block = (16, 16, 1)  # type: ignore[misc]

    @pytest.mark.parametrize("tile", [0, -1, 33, 2.0, "16", True])
    def test_a_tile_that_makes_no_block_is_an_error(self, tile: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="tile="):
            tiled(tile)


GOOD = ones(4, 4)
BAD_MATRICES = {
    "list": ([[1.0]], TypeError, r"A is a list.*np\.array\(A, dtype=np\.float32\)"),
    "None": (None, TypeError, "A is a NoneType"),
    "scalar": (2.0, TypeError, "A is a float"),
    "float64": (np.ones((4, 4)), TypeError, r"A has dtype float64.*A\.astype\(np\.float32\)"),
    "int": (np.ones((4, 4), int), TypeError, "A has dtype int64"),
    "complex": (np.ones((4, 4), np.complex64), TypeError, "A has dtype complex64"),
    "bool": (np.ones((4, 4), bool), TypeError, "A has dtype bool"),
    "object": (np.ones((4, 4), object), TypeError, "A has dtype object"),
    "swapped bytes": (np.ones((4, 4), ">f4"), TypeError, "A has dtype >f4"),
    "vector": (ones(4), ValueError, r"A has shape \(4,\), 1-D instead of 2-D.*A\.reshape"),
    "0-D": (np.float32(1) * np.ones((), np.float32), TypeError, "A is a float32"),
    "3-D": (ones(2, 4, 4), ValueError, r"A has shape \(2, 4, 4\), 3-D"),
    "no rows": (ones(0, 4), ValueError, r"A has shape \(0, 4\): M, N and K must be at least 1"),
    "no columns": (ones(4, 0), ValueError, r"A has shape \(4, 0\)"),
    "Fortran": (np.asfortranarray(ones(4, 5)[:, :4] * 2), ValueError, r"A .* Fortran order"),
    "transposed": (ones(5, 4).T[:, :4], ValueError, r"np\.ascontiguousarray\(A\)"),
    "columns": (ones(4, 8)[:, ::2], ValueError, r"A of shape \(4, 4\) has gaps, strides \(32, 8\)"),
    "reversed": (ones(4, 4)[::-1], ValueError, r"A .* strides \(-16, 4\)"),
    "broadcast": (np.broadcast_to(ones(1, 4), (4, 4)), ValueError, r"strides \(0, 4\)"),
    "masked": (np.ma.masked_array(ones(4, 4)), TypeError, r"masked array.*A\.filled\(0\)"),
}


class TestRefusals:
    """None of these may touch the device, let alone return an answer."""

    @pytest.mark.parametrize("case", BAD_MATRICES.values(), ids=BAD_MATRICES)
    def test_what_is_no_matrix_for_a_kernel_is_an_error_that_names_it(self, case: Any) -> None:
        matrix, error, message = case
        with pytest.raises(error, match=message):
            KERNELS["naive"](matrix, GOOD)
        with pytest.raises(error, match=re.sub(r"\bA\b", "B", message)):
            KERNELS["naive"](GOOD, matrix)

    def test_inner_sizes_that_differ_are_an_error_with_the_way_out(self) -> None:
        with pytest.raises(ValueError, match=r"A has 3 columns and B has 2 rows.*\(M, K\)"):
            KERNELS["tiled"](ones(4, 3), ones(2, 5))
        with pytest.raises(ValueError, match=r"ascontiguousarray\(B\.T\)"):
            KERNELS["tiled"](ones(4, 3), ones(5, 3))
        with pytest.raises(ValueError, match=r"ascontiguousarray\(A\.T\)"):
            KERNELS["tiled"](ones(3, 4), ones(3, 5))

    def test_more_rows_than_a_grid_has_are_refused_before_anything_is_copied(self) -> None:
        with pytest.raises(ValueError, match="keep M <= 2,097,120"):
            KERNELS["tiled"](np.broadcast_to(ones(1, 1), (2_097_121, 1)).copy(), ones(1, 1))

    @pytest.mark.parametrize(
        ("size", "error", "message"),
        [
            (4.0, TypeError, "K=4.0 is a float: give an integer"),
            ("4", TypeError, "K='4' is a str"),
            (None, TypeError, "K=None is a NoneType"),
            (True, TypeError, "K=True is a bool"),
            (np.float32(4), TypeError, "is a float32"),
            (0, ValueError, "K=0 is outside 1 to"),
            (-4, ValueError, "K=-4 is outside"),
            (MAX_SIZE + 1, ValueError, "K=2147482625 is outside"),
            (2**40, ValueError, "K=1099511627776 is outside"),
        ],
    )
    def test_a_size_that_is_no_integer_or_out_of_range(
        self, size: Any, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            KERNELS["naive"].launch(1 << 20, 2 << 20, 3 << 20, 4, 4, size)

    @pytest.mark.parametrize("memory", [None, 0, -1, "A", 1.5, True, [1, 2], object()])
    def test_what_is_no_device_memory(self, memory: Any) -> None:
        with pytest.raises(TypeError, match="dB=.* is no device memory"):
            KERNELS["naive"].launch(1 << 20, memory, 3 << 20, 4, 4, 4)

    def test_a_numpy_array_is_not_device_memory(self) -> None:
        with pytest.raises(TypeError, match=r"dA is a NumPy array.*upload\(dA\)"):
            KERNELS["naive"].launch(GOOD, 2 << 20, 3 << 20, 4, 4, 4)

    def test_a_result_over_its_own_input_is_refused(self) -> None:
        with pytest.raises(ValueError, match="dC is the same memory as dA or dB"):
            KERNELS["naive"].launch(1 << 20, 2 << 20, 2 << 20, 4, 4, 4)


@pytest.mark.usefixtures("autoinit")
class TestDeviceArrayRefusals:
    def test_a_shape_that_does_not_fit_the_sizes(self) -> None:
        with upload(ones(3, 4)) as dA, upload(ones(4, 5)) as dB, allocate((3, 5)) as dC:
            with pytest.raises(ValueError, match=r"dA has shape \(3, 4\), but .* 3 x 5"):
                KERNELS["naive"].launch(dA, dB, dC, 3, 4, 5)
            with pytest.raises(ValueError, match=r"dB has shape"):
                KERNELS["naive"].launch(dA, dC, dB, 3, 5, 4)

    def test_a_flat_array_must_be_large_enough(self) -> None:
        with upload(ones(12)) as dA, upload(ones(20)) as dB, allocate(14) as dC:
            with pytest.raises(ValueError, match=r"dC has shape \(14,\)"):
                KERNELS["naive"].launch(dA, dB, dC, 3, 5, 4)

    def test_another_dtype(self) -> None:
        with upload(np.ones((3, 4))) as dA, upload(ones(4, 5)) as dB, allocate((3, 5)) as dC:
            with pytest.raises(TypeError, match="dA has dtype float64"):
                KERNELS["naive"].launch(dA, dB, dC, 3, 5, 4)

    def test_a_freed_array(self) -> None:
        dA = upload(ones(3, 4))
        dA.free()
        with upload(ones(4, 5)) as dB, allocate((3, 5)) as dC:
            with pytest.raises(ValueError, match=r"DeviceArray of shape \(3, 4\) was freed"):
                KERNELS["naive"].launch(dA, dB, dC, 3, 5, 4)

    def test_a_result_is_checked_like_any_other(self) -> None:
        A, B, _ = inputs_and_chain(100, 90, 80)
        C = KERNELS["tiled"](A, B)
        assert check_product(C, A, B)
        C[99, 89] = np.nan
        assert not check_product(C, A, B)


def test_ctrl_c_stops_a_product_frees_its_memory_and_leaves_all_usable(autoinit: Any) -> None:
    n = 3000 if autoinit.backend == "cpu" else 12000  # some ten seconds
    script = f"""
        import os, signal, threading
        import helpers.autoinit
        import numpy as np
        import pycuda.driver as cuda
        from helpers.kernels import KERNELS
        ones, kernel = np.ones(({n}, {n}), np.float32), KERNELS["naive_uncoalesced"]
        small = np.ones((3, 3), np.float32)
        kernel(small, small)  # compiled
        free = cuda.mem_get_info()[0]
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            kernel(ones, ones)
            print("ran to its end")
        except KeyboardInterrupt:
            print("interrupted", cuda.mem_get_info()[0] >= free, kernel(small, small)[0, 0])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=KERNELS["naive"].file.parent.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "interrupted True 3.0", done.stderr
