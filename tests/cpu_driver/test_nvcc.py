"""The nvcc stand-in: what PyCUDA compiles, and what a compiler says, as on a GPU."""

from __future__ import annotations

import os
import subprocess

import pytest

from helpers import toolkit
from helpers.cpu_driver import nvcc, ptxas

SOURCE = """extern "C" __global__ void k(float *a, int n) {
    if (threadIdx.x < n) a[threadIdx.x] = n;
}
"""


@pytest.fixture
def compile(tmp_path):
    """Run the stand-in in a folder with a space in its name."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "kernel.cu").write_text(SOURCE)
    shim = nvcc.install(toolkit.require_toolkit().nvcc, tmp_path / "bin dir") / "nvcc"

    temporary = tmp_path / "tmp"
    temporary.mkdir()

    def run(*arguments: str, text: str | None = None):
        if text is not None:
            (folder / "kernel.cu").write_text(text)
        done = subprocess.run([shim, *arguments], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "TMPDIR": str(temporary)}, check=False)
        assert not os.listdir(temporary)
        return done
    run.folder = folder
    return run


def test_a_cubin_is_ptx_with_lines_and_ptxas_report(compile):
    done = compile("--cubin", "-arch", "sm_80", "kernel.cu")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(os.listdir(compile.folder)) == ["kernel.cu", "kernel.cubin"]
    text = (compile.folder / "kernel.cubin").read_text()
    assert ".target sm_80" in text and ".loc" in text and "kernel.cu" in text
    needs = ptxas.resources(ptxas.report_in(text))
    assert set(needs) == {"k"} and 0 < needs["k"].registers <= 32


def test_the_output_goes_where_it_is_asked_for(compile):
    assert compile("--cubin", "-arch=sm_86", "-o", "out put.bin", "kernel.cu").returncode == 0
    assert ".target sm_86" in (compile.folder / "out put.bin").read_text()
    (compile.folder / "there").mkdir()
    assert compile("-cubin", "-arch=native", "-odir", "there", "kernel.cu").returncode == 0
    assert ".target sm_80" in (compile.folder / "there/kernel.cubin").read_text()


def test_options_reach_the_compiler(compile):
    (compile.folder / "inc dir").mkdir()
    (compile.folder / "inc dir/n.h").write_text("#define FROM_HEADER 1234567\n")
    done = compile("--cubin", "-DVALUE=7654321", "-I", "inc dir", "-G", "kernel.cu", text="""
        #include "n.h"
        extern "C" __global__ void k(int *a) { *a = FROM_HEADER + VALUE; }
    """)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(1234567 + 7654321) in (compile.folder / "kernel.cubin").read_text()


def test_kept_files_stay(compile):
    assert compile("--cubin", "--keep", "-arch", "sm_80", "kernel.cu").returncode == 0
    kept = os.listdir(compile.folder)
    assert "kernel.ptx" in kept and "kernel.cudafe1.c" in kept
    assert ".target sm_80" in (compile.folder / "kernel.cubin").read_text()


def test_what_ptxas_is_asked_to_say_is_shown(compile):
    for option in (["-Xptxas", "-v"], ["--ptxas-options=-v"], ["-Xptxas=-O1,-v"]):
        done = compile("--cubin", "-arch", "sm_80", *option, "kernel.cu")
        assert "registers" in done.stderr
        assert ptxas.report_in((compile.folder / "kernel.cubin").read_text())


def test_errors_and_warnings_are_the_compilers_own(compile):
    bad = '#line 1 "my_kernel.cu"\n__global__ void k() {\n  undeclared = 1;\n}\n'
    done = compile("--cubin", "-arch", "sm_80", "kernel.cu", text=bad)
    nvcc = toolkit.require_toolkit().nvcc
    real = subprocess.run([nvcc, "--cubin", "-arch", "sm_80", "kernel.cu"],
                          cwd=compile.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (
        real.returncode, real.stdout, real.stderr)
    assert 'my_kernel.cu(2): error: identifier "undeclared" is undefined' in done.stderr
    assert "kernel.cubin" not in os.listdir(compile.folder)
    warns = "__global__ void k(int *a) { int unused = 1; *a = 2; }"
    done = compile("--cubin", "-arch", "sm_80", "kernel.cu", text=warns)
    assert done.returncode == 0 and '"unused" was declared but never referenced' in done.stderr
    assert "ptxas" not in done.stderr


def test_what_only_ptxas_refuses_is_refused(compile):
    done = compile("--cubin", "-arch", "sm_80", "kernel.cu", text="""
        __global__ void k(float *a) {
            __shared__ float s[12800];
            s[threadIdx.x] = a[0];
            __syncthreads();
            a[1] = s[threadIdx.y];
        }""")
    assert done.returncode != 0
    assert "uses too much shared data (0xc800 bytes, 0xc000 max)" in done.stderr
    assert "kernel.cubin" not in os.listdir(compile.folder)


def test_other_calls_are_left_alone(compile):
    real = toolkit.require_toolkit().nvcc
    for arguments in (["--preprocess", "kernel.cu", "--compiler-options", "-P"],
                      ["--ptx", "-arch", "sm_80", "kernel.cu"], ["--help"],
                      ["nothing.cu"]):
        wanted = subprocess.run([real, *arguments], cwd=compile.folder, capture_output=True,
                                text=True, check=False)
        done = compile(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (
            wanted.returncode, wanted.stdout, wanted.stderr)


def test_the_version_has_one_line_more(compile):
    real = subprocess.run([toolkit.require_toolkit().nvcc, "--version"], capture_output=True,
                          text=True, check=True)
    added = compile("--version").stdout.removeprefix(real.stdout)
    assert added == f"CPU driver: cubin files hold PTX (format {nvcc.FORMAT})\n"


def test_without_a_toolkit_it_says_how_to_get_one(tmp_path):
    shim = nvcc.install(None, tmp_path) / "nvcc"
    done = subprocess.run([shim, "--cubin", "kernel.cu"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and "make setup" in done.stderr


def test_a_compile_error_is_pycudas_own_exception(passes):
    passes("""
        source = '#line 1 "my_kernel.cu"\\n__global__ void k() {\\n  undeclared = 1;\\n}\\n'
        try:
            SourceModule(source)
            raise AssertionError("it compiled")
        except cuda.CompileError as error:
            assert 'my_kernel.cu(2): error: identifier "undeclared"' in error.stderr
        assert SourceModule("#include <math.h>\\n__global__ void k() {}").get_function("k")
    """)
