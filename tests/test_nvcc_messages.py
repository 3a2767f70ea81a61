"""nvcc's messages are told with the source's own line, and a caret under the right place."""

import pytest

from helpers.compiling import compiled
from helpers.nvcc_messages import messages, place, plain_name
from helpers.sandbox import CompileFailed, ptx_of


def failure(source, *options):
    with pytest.raises(CompileFailed) as raised:
        ptx_of(source, options)
    return str(raised.value)


KERNEL = """#line 1 "mine.cu"
// a kernel
__global__ void k(float *x, int n)
{
	int i =   threadIdx.x;      // nvcc shortens white space
    x[i]  =   sun + 1;          // sun is not there
}
"""


def test_the_line_is_the_students_and_the_caret_is_under_the_word():
    assert failure(KERNEL) == (
        'mine.cu(5): error: identifier "sun" is undefined\n'
        "    x[i]  =   sun + 1;          // sun is not there\n"
        "              ^"
    )


def test_macros_before_the_place_do_not_shift_it():
    source = "__global__ void k(float *x) { __shared__ float s[32]; x[0] = nothing; }"
    _, line, caret = failure(source).split("\n")
    assert line[caret.index("^") :].startswith("nothing")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("__global__ void k(float *x) {\n  x[0] = 1\n}\n", 'kernel.cu(3): error: expected a ";"'),
        ("__global__ void k(float *x) {\n", 'kernel.cu(1): error: this "{" is not closed'),
        ("#include <nope.h>\n__global__ void k() {}", "nope.h: No such file"),
        ("#if 1\n__global__ void k() {}", "unterminated #if"),
        ('__global__ void k() {}\n#error "stop here"', "stop here"),
        ('__global__ void k() { static_assert(1 == 2, "one is not two"); }', "one is not two"),
    ],
)
def test_errors_of_every_stage(source, text):
    told = failure(source)
    assert text in told and "/tmp" not in told


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("__global__ void k(float *x) {\n  x[0] = 1;\n}\n  } // }\n",
         'kernel.cu(4): error: this "}" closes nothing: there is no "{" for it\n    } // }\n    ^'),
        ("__global__ void k(float *x)\n{\n  // {\n  if (x[0]) { x[0] = '{';\n}\n",
         'kernel.cu(2): error: this "{" is not closed: a "}" is missing below\n    {\n    ^'),
        ("__global__ void k() {}\n\nint y = 3\n\n",
         'kernel.cu(3): error: expected a ";", and here the source ends\n    int y = 3'),
    ],
)  # fmt: skip
def test_what_nvcc_finds_below_the_source_is_told_of_a_line_of_it(source, told):
    """PyCUDA's extern "C" { ends below it, and a brace too many or too few meets that one."""
    assert failure(source) == told


@pytest.mark.parametrize(
    ("source", "place", "told"),
    [
        ("\n__global__ vod k(float *x) { }", "vod", 'identifier "vod"'),
        ("\n__global__ int k(float *x) { }", "__global__", "must have a void return type"),
        ("\n__global__ void k(float *x) { x[0] = “1”; }", "“", "U+201C (left double"),
        ("\n__global__ void k(float *x) { x[0]\u00a0= 1; }", "\u00a0", "U+00A0 (no-break space)"),
        ("\n__global__ void k(float *x) { x[0] = größe; }", "größe", 'identifier "größe"'),
    ],
)  # fmt: skip
def test_words_and_characters_that_are_wrong(source, place, told):
    head, line, caret = failure(source).split("\n")[:3]
    assert head.startswith("kernel.cu(2): error: ") and told in failure(source)
    assert line[caret.index("^") :].startswith(place)


def test_of_a_long_line_the_part_with_the_error_is_shown():
    told = failure("__global__ void k(float *x) { x[0] = " + "x[0] + " * 300 + "oops; }")
    _, line, caret = told.split("\n")
    assert len(line) <= 106 and line[caret.index("^") :].startswith("oops")


def test_an_error_in_a_header_names_the_line_that_uses_it():
    source = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(float *x) {
    auto tile = cg::tiled_partition<33>(cg::this_thread_block());
}"""
    told = failure(source)
    assert told.startswith("cooperative_groups.h(") and "/" not in told.split(" error: ")[0]
    assert told.endswith("which kernel.cu(4) uses:\n    auto tile = cg::tiled_partition<33>"
                         "(cg::this_thread_block());")  # fmt: skip


def test_what_the_operands_are_is_told():
    source = "#include <cuda_fp16.h>\n__global__ void k(half *x) {\n    x[0] = x[0] + 1.0;\n}"
    head, line, caret = failure(source).split("\n")
    assert head.startswith("kernel.cu(3): ") and head.endswith("operand types are: half + double")
    assert line[caret.index("^") :].startswith("+ 1.0")


@pytest.mark.parametrize(
    ("body", "number", "text"),
    [('asm("nonsense.f32 %0;" : "=f"(x[0]));', 3, "'nonsense'"),
     ('x[1] = 2;\n    asm("mov.f32 %0, 0f00000000;\\n"\n        "other %0;" : "=f"(x[0]));', 5,
      "'other'")],
)  # fmt: skip
def test_an_error_of_ptxas_names_the_line_of_the_source(autoinit, body, number, text):
    with pytest.raises(CompileFailed) as raised:
        compiled(f"__global__ void k(float *x)\n{{\n    {body}\n}}")
    assert str(raised.value).startswith(f"kernel.cu({number}): error: ")
    assert text in str(raised.value) and "/" not in str(raised.value).replace("//", "")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("__device__ float g(float);\n__global__ void k(float *x) { x[0] = g(1); }",
         "function g is declared and used, but not defined"),
        ("__constant__ float c[20000];\n__global__ void k(float *x, int i) { x[0] = c[i]; }",
         "80,000 bytes of __constant__ variables are declared, and at most 65,536 can be"),
    ],
)  # fmt: skip
def test_messages_of_ptxas_in_words(autoinit, source, told):
    with pytest.raises(CompileFailed, match=told):
        compiled(source)


def test_three_errors_at_once_are_enough():
    told = failure("__global__ void k() { a(); b(); c(); d(); e(); }")
    assert told.count("error:") == 3 and told.endswith("(and 2 more)")


def test_warnings_do_not_hide_the_error():
    told = failure("__global__ void k(float *x) { int unused; x[0] = y; }")
    assert told.startswith('kernel.cu(1): error: identifier "y"') and "unused was" not in told


def test_an_unknown_option_is_told():
    assert "-nonsense" in failure("__global__ void k() {}", "-nonsense")


def test_place_finds_the_same_text():
    line = "  As[ty][tx] = A [row * K];  // A"
    quoted = "  As[ty][tx] = A[row * K];"
    assert line[place(line, quoted, quoted.index("row")) :].startswith("row * K]")
    assert place(line, quoted, 400) is None


def test_what_is_said_beside_errors_is_no_message():
    assert [m.kind for m in messages('2 errors detected in the compilation of "kernel.cu".')] == []


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("k", "k"), ("_Z1kPf", "k"), ("_ZN3foo3barEPf", "bar"), ("_Z6matmulIfEvPT_", "matmul"),
     ("_ZL4statPf", "stat")],
)  # fmt: skip
def test_names_in_symbols(symbol, name):
    assert plain_name(symbol) == name
