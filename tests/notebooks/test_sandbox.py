"""Kernels that are wrong run in the engine without harm, and what is wrong is said in words."""

import numpy as np
import pytest

from helpers.sandbox import CompileFailed, run_in_engine

SCALE = """
__global__ void scale(float *x, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
"""


def scale(source: str, n: int = 40, size: int = 40, **options):
    x = np.arange(size, dtype=np.float32)
    arguments = {"x": x, "factor": np.float32(2), "n": np.int32(n)}
    return run_in_engine(source, "scale", arguments, grid=(2,), block=(32,), **options), x


def test_a_right_kernel_changes_the_arrays_it_was_given():
    outcome, x = scale(SCALE)
    assert outcome.fault is None and "no fault" in str(outcome)
    assert (x == 2 * np.arange(40)).all()


def test_an_access_past_the_end_names_kernel_line_thread_and_element():
    outcome, x = scale(SCALE, n=50)
    assert str(outcome) == (
        "kernel scale, kernel.cu:5, block (1, 0, 0), thread (8, 0, 0):\n"
        "  out-of-bounds read of 4 bytes of global memory at x[40]; x ends at x[39]")


def test_an_access_before_the_start_has_a_negative_index():
    outcome, _ = scale(SCALE.replace("x[i]", "x[i - 3]"))
    assert "at x[-3]; x begins at x[0]" in str(outcome)


@pytest.mark.parametrize("statement, finding", [
    ("x[i] = *(float *)(8ull * n)", "read of 4 bytes of memory at an address far from every array"),
    ("((float2 *)(x + 1))[0].x = 1; ((float2 *)(x + 1))[0] = make_float2(1, factor)",
     "misaligned write of 8 bytes of global memory at x[1]"),
    ("{ __shared__ float s[8]; s[i + n] = x[i]; x[i] = s[7]; }",
     "at byte 160 of the block's 32 bytes"),
])
def test_other_faults_are_told_without_addresses(statement, finding):
    outcome, _ = scale(SCALE.replace("x[i] *= factor", statement))
    assert finding in str(outcome) and "0x" not in str(outcome)


def test_the_file_name_of_a_line_directive_is_used():
    outcome, _ = scale('#line 1 "mine.cu"\n' + SCALE, n=50)
    assert "mine.cu:5" in str(outcome)


def test_the_lowest_block_is_reported_however_many_run_at_once():
    source = SCALE.replace("if (i < n)", "if (blockIdx.x >= 3) ").replace("x[i]", "x[i + 1000000]")
    for _ in range(5):
        x = np.zeros(4096, np.float32)
        arguments = {"x": x, "factor": np.float32(2), "n": np.int32(0)}
        outcome = run_in_engine(source, "scale", arguments, grid=(64,), block=(64,))
        assert "block (3, 0, 0), thread (0, 0, 0):" in str(outcome)
        assert "at x[1,000,192]; x ends at x[4,095]" in str(outcome)


def test_a_loop_without_end_is_stopped():
    source = SCALE.replace("x[i] *= factor", "while (((volatile float *)x)[0] >= 0) ;")
    outcome, _ = scale(source, seconds=1)
    assert "stopped after 1 s" in str(outcome)


def test_what_does_not_compile_is_reported_by_line():
    with pytest.raises(CompileFailed, match=r'kernel.cu\(5\): error: .*"y" is undefined'):
        scale(SCALE.replace("x[i]", "y[i]"))


@pytest.mark.parametrize("n", [40, np.int64(40)])
def test_a_scalar_of_the_wrong_size_is_refused(n):
    arguments = {"x": np.zeros(40, np.float32), "factor": np.float32(2), "n": n}
    with pytest.raises(TypeError, match=r"argument n is a int.*write np.int32\(n\)"):
        run_in_engine(SCALE, "scale", arguments, grid=(2,), block=(32,))


def test_a_wrong_number_of_arguments_and_an_unknown_kernel_are_refused():
    with pytest.raises(TypeError, match="takes 3 arguments, 1 are given: x"):
        run_in_engine(SCALE, "scale", {"x": np.zeros(4, np.float32)}, grid=(1,), block=(32,))
    with pytest.raises(TypeError, match="no kernel sale in the source, only scale"):
        run_in_engine(SCALE, "sale", {"x": np.zeros(4, np.float32)}, grid=(1,), block=(32,))


def test_options_reach_the_compiler():
    outcome, x = scale(SCALE.replace("*= factor", "= TILE"), options=("-DTILE=16",))
    assert outcome.fault is None and (x == 16).all()
