"""nvcc's messages are told with the source's own line, and a caret under the right place."""

import pytest

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
        ("__global__ void k(float *x) {\n", 'error: expected a "}", and here the source ends'),
        ("#include <nope.h>\n__global__ void k() {}", "nope.h: No such file"),
        ("#if 1\n__global__ void k() {}", "unterminated #if"),
        ('__global__ void k() {}\n#error "stop here"', "stop here"),
        ('__global__ void k() { static_assert(1 == 2, "one is not two"); }', "one is not two"),
    ],
)
def test_errors_of_every_stage(source, text):
    told = failure(source)
    assert text in told and "/tmp" not in told


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
