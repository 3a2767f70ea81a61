"""`%%cuda` in a notebook: what is bound, what is kept, and what is said when it cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers import magics
from helpers.bound import BoundKernel
from helpers.check import check_product
from helpers.errors import Told
from helpers.kernels import KERNELS
from helpers.show import diff, show

FILL = """__global__ void fill(float *x, float value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = value;
}
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "notebooks" / "work"
    monkeypatch.setattr(magics, "WORK_FOLDER", folder)
    monkeypatch.setattr("helpers.show.WORK_FOLDER", folder)
    return folder


@pytest.fixture
def shell(work, autoinit):
    shell = InteractiveShell()
    shell.run_cell("%load_ext helpers")
    return shell


def run(shell, capsys, line, cell=FILL):
    """What a cell prints, tracebacks included."""
    capsys.readouterr()
    shell.run_cell(f"%%cuda {line}\n{cell}")
    said = capsys.readouterr()
    return said.out + said.err


def test_kernels_are_bound_to_their_names_and_the_cell_is_kept(shell, capsys, work):
    assert run(shell, capsys, "mine --block 64") == (
        "mine.cu: kernel fill(float *x, float value, int n)\n")  # fmt: skip
    assert isinstance(shell.user_ns["fill"], BoundKernel)
    assert (work / "mine.cu").read_text() == "// %%cuda mine --block 64\n" + FILL
    shell.run_cell("import numpy as np\nfrom helpers.memory import allocate\nx = allocate(100)\n"
                   "fill(x, np.float32(2), np.int32(90), grid=2)\nx = x.download()")  # fmt: skip
    x = shell.user_ns["x"]
    assert (x[:90] == 2).all() and np.isnan(x[90:]).all()


def test_several_kernels_in_a_cell(shell, capsys):
    said = run(shell, capsys, "two", FILL + FILL.replace("void fill", "void other"))
    assert said.count("kernel") == 2 and {"fill", "other"} <= set(shell.user_ns)


def test_macros_and_options_reach_nvcc(shell, capsys):
    run(shell, capsys, "m --block=16,16 -DTILE=16 --nvcc='-use_fast_math'", KERNELS["tiled"].source)
    kernel = shell.user_ns["matmul_tiled"]
    assert kernel.block == (16, 16, 1) and kernel.options == ("-DTILE=16", "-use_fast_math")
    assert kernel.function().shared_size_bytes == 2 * 16 * 16 * 4
    A, B = np.random.default_rng(1).random((2, 40, 40), np.float32)
    assert check_product(kernel(A, B), A, B)


def test_options_are_split_as_a_shell_does_it(shell, capsys):
    """As the help of --nvcc has it: several options for nvcc, in quotes."""
    cell = "__global__ void k(float *x) { x[0] = VALUE; }"
    run(shell, capsys, "m --nvcc='-use_fast_math -maxrregcount 64' -D'VALUE=1 + 2'", cell)
    assert shell.user_ns["k"].options == (
        "-DVALUE=1 + 2", "-use_fast_math", "-maxrregcount", "64")  # fmt: skip


def test_kernels_whose_names_macros_make_are_bound(shell, capsys):
    cell = """#define KERNEL __global__ void
#define MAKE(name, value) \\
    __global__ void name(float *x) { x[0] = value; }
KERNEL first(float *x) { x[0] = 1; }
MAKE(second, 2)
static __global__ void third(float *x) { x[0] = 3; }
"""
    run(shell, capsys, "m", cell)
    shell.run_cell("from helpers.memory import allocate\nx = allocate(1)\nfound = []\n"
                   "for kernel in first, second, third:\n"
                   "    kernel(x, grid=1, block=1)\n    found.append(x.download()[0])")
    assert shell.user_ns["found"] == [1, 2, 3]
    said = run(shell, capsys, "n", "#define NAME named\n__global__ void NAME(float *x) { }")
    assert said == "n.cu: kernel named(float *x)\n"


def test_a_compile_error_is_the_students_own_line_and_nothing_else(shell, capsys):
    said = run(shell, capsys, "mine", FILL.replace("= value", "= valu"))
    # %%cuda is line 1 of the cell, so the fourth line of FILL is line 5.
    assert said.strip() == ('CompileFailed: mine.cu(5): error: identifier "valu" is undefined\n'
                            "    if (i < n) x[i] = valu;\n"
                            "                      ^")  # fmt: skip


def test_a_cell_that_does_not_compile_leaves_no_older_kernel_to_be_checked(shell, capsys, work):
    run(shell, capsys, "other", FILL.replace("void fill", "void other"))
    run(shell, capsys, "mine")
    said = run(shell, capsys, "mine", "nonsense")
    assert said.strip().endswith("(fill: not bound any more, until this compiles)")
    assert "fill" not in shell.user_ns and "other" in shell.user_ns
    assert "nonsense" in (work / "mine.cu").read_text()
    run(shell, capsys, "mine")
    assert "fill" in shell.user_ns


def test_a_kernel_that_goes_with_a_cell_of_the_same_name_is_told(shell, capsys):
    run(shell, capsys, "mine")
    said = run(shell, capsys, "mine", FILL.replace("void fill", "void other"))
    assert said.startswith("note: fill, from mine.cu as it was before, not bound any more")
    assert "fill" not in shell.user_ns and "other" in shell.user_ns


def test_warnings_are_shown_every_time_and_do_not_fail(shell, capsys):
    for _ in range(2):
        said = run(shell, capsys, "mine", FILL.replace("int i =", "int unused; int i ="))
        assert 'mine.cu(4): warning: variable "unused" was declared' in said
        assert "kernel fill(" in said and "CUDA compiler succeeded" not in said


def test_a_fault_names_the_line_of_the_cell(shell, capsys):
    run(shell, capsys, "mine --block 64", FILL.replace("if (i < n) ", ""))
    capsys.readouterr()
    shell.run_cell("from helpers.memory import allocate\nfrom helpers.profile import profile\n"
                   "import numpy as np\nx = np.zeros(3, np.float32)\n"
                   "profile(fill, x, np.float32(1), np.int32(3), grid=1)")  # fmt: skip
    said = capsys.readouterr()
    assert said.out.startswith("Fault: kernel fill, mine.cu:5, block (0, 0, 0), thread (3, 0, 0)")
    assert "Traceback" not in said.out + said.err and (said.out + said.err).count("\n") <= 2


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "%%cuda needs a name"),
        ("../mine", "the name is that of a file in notebooks/work"),
        ("a/b", "the name is that of a file in notebooks/work"),
        ("mine --blok 3", "unrecognized arguments: --blok 3"),
        ("mine --block 3,a", "'3,a' is not one to 3 integers"),
        ("mine --block 0", "'0' is not one to 3 integers"),
        ("mine --block 33,33", "has 1,089 threads"),
        ("mine --nvcc=-nonsense", "CompileFailed: error: Unknown option '-nonsense'"),
        ("mine --nvcc='-O1 --nonsense'", "CompileFailed: error: Unknown option '--nonsense'"),
        ("mine --nvcc=--ptx", "nvcc's option --ptx makes it write something else"),
        ("mine --nvcc='-o there.cubin'", "nvcc's option -o makes it write something else"),
        ("mine --nvcc -O1", "with an equals sign: --nvcc='-use_fast_math -std=c++20'"),
        ("mine --nvcc='-O1", "No closing quotation"),
        ("mine --shared -4", "shared=-4: write the bytes"),
        ("m" * 101, "at most 100"),
        ("mine --save ''", "write the name of a .cu file"),
        ("mine --save mine.txt", "write the name of a .cu file"),
        ("mine --save /no/such/folder/mine.cu", "there is no folder"),
    ],
)
def test_options_that_cannot_be_used(shell, capsys, line, text):
    said = run(shell, capsys, line)
    assert text in said and "Traceback" not in said and "fill" not in shell.user_ns


@pytest.mark.parametrize("file", ["02_tiled.cu", "new.cu", "standalone/matmul_shared.cu"])
def test_files_of_the_course_are_never_written(shell, capsys, file):
    path = magics.CUDA_FOLDER / file
    before = path.read_text() if path.exists() else None
    assert "stay as they are" in run(shell, capsys, f"mine --save {path}")
    assert (path.read_text() if path.exists() else None) == before
    elsewhere = magics.ROOT / "tests" / "mine.cu"
    assert "only below notebooks/" in run(shell, capsys, f"mine --save {elsewhere}")


def test_save_writes_what_compiles(shell, capsys, tmp_path):
    target = tmp_path / "mine.cu"
    run(shell, capsys, f"mine --save {target}")
    good = target.read_text()
    assert FILL in good
    run(shell, capsys, f"mine --save {target}", "nonsense")
    assert target.read_text() == good


def test_a_cell_is_compiled_where_no_copy_can_be_kept(shell, capsys, work, tmp_path):
    work.parent.write_text("no folder")
    said = run(shell, capsys, "mine")
    assert said.startswith("note: no copy of the cell in notebooks/work: ")
    assert "kernel fill" in said
    (tmp_path / "folder.cu").mkdir()
    said = run(shell, capsys, f"mine --save {tmp_path / 'folder.cu'}")
    assert "WrongOption: --save folder.cu cannot be written: Is a directory" in said


def test_a_name_that_is_taken_is_told(shell, capsys):
    shell.run_cell("fill = [1, 2]")
    assert "note: fill was a list" in run(shell, capsys, "mine")
    assert "note" not in run(shell, capsys, "mine")
    said = run(shell, capsys, "mine", FILL.replace("void fill", "void lambda"))
    assert "a word of Python" in said
    said = run(shell, capsys, "mine", FILL.replace("void fill", "void get_ipython"))
    assert "a word of IPython" in said and shell.user_ns["get_ipython"]() is shell


def test_a_template_is_not_bound_and_that_is_said(shell, capsys):
    template = "template <typename T> __global__ void made(T *x) { x[0] = 1; }\n"
    said = run(shell, capsys, "mine", FILL + template)
    assert "made is not bound: it is a template" in said and "kernel fill" in said
    assert "NoKernel: no kernel of this cell can be bound" in run(shell, capsys, "mine", template)


def test_an_exception_can_be_caught_as_any_other(shell, capsys):
    """As nbval sees it: with its name and its value."""
    result = shell.run_cell("%%cuda mine\nnonsense")
    assert type(result.error_in_exec).__name__ == "CompileFailed"
    assert "mine.cu(2): error" in str(result.error_in_exec)


def test_show_and_diff_of_what_cannot_be_shown(work):
    work.mkdir(parents=True)
    (work / "binary.cu").write_bytes(bytes(range(256)))
    (work / "long.cu").write_text("int a;\n" * 6000)
    with pytest.raises(Told, match=r"binary\.cu is no text"):
        show("binary.cu")
    for look in (lambda: show("long.cu"), lambda: diff("long.cu", "01_naive.cu")):
        with pytest.raises(Told, match=r"long\.cu has 6,000 lines, too many to be shown"):
            look()
    for name in None, 3, KERNELS["tiled"]:
        with pytest.raises(Told, match="is no name: write that of a file"):
            show(name)
        if name is not None:
            with pytest.raises(Told, match="is no name: write that of a file"):
                show("02_tiled.cu", name)
    with pytest.raises(Told, match=r"no function matmul_tile; did you mean matmul_tiled\?"):
        show("02_tiled.cu", "matmul_tile")
    for name in "for", "", ".*", "TILE":
        with pytest.raises(Told, match="it has matmul_tiled"):
            show("02_tiled.cu", name)


def test_lines_are_counted_as_the_compiler_counts_them(work):
    work.mkdir(parents=True)
    (work / "odd.cu").write_bytes(b"int a;\x0cint b;\r\nint \xff;\x1b[31m\n\x0bint d;\n")
    assert show("odd.cu").lines == (
        "int a;\N{REPLACEMENT CHARACTER}int b;",
        "int \N{REPLACEMENT CHARACTER};\N{REPLACEMENT CHARACTER}[31m",
        "\N{REPLACEMENT CHARACTER}int d;",
    )
    assert show("notebooks/work/odd.cu").lines == show("odd.cu").lines


def test_show_and_diff_know_the_copies(shell, capsys):
    run(shell, capsys, "mine", KERNELS["naive"].file.read_text().replace("k < K", "k <= K"))
    assert str(show("mine.cu")).startswith("work/mine.cu\n   1  // %%cuda mine\n")
    changed = diff("01_naive.cu", "mine.cu", "matmul_naive")
    assert [row[2].strip() for row in changed.rows if row and not row[1]] == [
        "for (int k = 0; k < K; ++k) {"]  # fmt: skip
    assert [row[2].strip() for row in changed.rows if row and not row[0]] == [
        "for (int k = 0; k <= K; ++k) {"]  # fmt: skip
