"""Several PTX texts become one module, as the linker of a GPU's driver makes it."""

from __future__ import annotations

import pytest

from helpers.cpu_driver import ptx_link

HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"


def _link(*texts: str) -> str:
    return ptx_link.link([(f"text {i}", HEAD + text) for i, text in enumerate(texts)], "sm_80",
                         device_runtime=False)


def test_functions_and_variables_of_several_sources_find_each_other(passes):
    lines = passes("""
from pycuda.compiler import DynamicModule
OPTIONS = ["-rdc=true", "-lineinfo"]
module = DynamicModule(no_extern_c=True)
module.add_source('''
#include <cstdio>
extern __device__ int twice(int x);
extern __constant__ int offsets[2];
extern __device__ int count;
static __device__ int own(int x) { return x + 1; }
static __device__ __noinline__ int step(int x) { return own(x) + offsets[1]; }
extern "C" __global__ void first(int *a) {
    a[threadIdx.x] = twice(step(threadIdx.x));
    atomicAdd(&count, 1);
    if (threadIdx.x == 0) printf("first\\\\n");
}''', nvcc_options=OPTIONS)
module.add_source('''
#include <cstdio>
__constant__ int offsets[2] = {5, 7};
__device__ int count = 100;
static __device__ __noinline__ int step(int x) { return x * 2; }
__device__ int twice(int x) { return step(x); }
extern "C" __global__ void second(int *a) {
    a[threadIdx.x] = step(count);
    if (threadIdx.x == 0) printf("second\\\\n");
}
''', nvcc_options=OPTIONS)
module.link()
a = np.zeros(40, np.int32)
module.get_function("first")(cuda.InOut(a), block=(40, 1, 1))
assert (a == 2 * (np.arange(40) + 8)).all(), a
module.get_function("second")(cuda.InOut(a), block=(40, 1, 1))
assert (a == 280).all()
assert cuda.from_device(module.get_global("count")[0], 1, np.int32)[0] == 140
assert module.get_global("offsets")[1] == 8
print(module.get_function("first").num_regs > 3)
""")
    assert lines == ["first", "second", "True"]


def test_a_link_that_fails_says_for_which_name(passes):
    lines = passes("""
from pycuda.compiler import DynamicModule
CALLER = '''extern __device__ int missing(int);
extern "C" __global__ void k(int *a) { a[0] = missing(a[1]); }'''
module = DynamicModule(no_extern_c=True)
module.add_source(CALLER, nvcc_options=["-rdc=true"], name="caller.ptx")
print(message(module.link))
twice = DynamicModule(no_extern_c=True)
twice.add_source("__device__ int shared = 1;", nvcc_options=["-rdc=true"], name="one.ptx")
print(message(twice.add_source, "__device__ int shared = 2;", nvcc_options=["-rdc=true"],
              name="two.ptx"))
print(message(DynamicModule().add_data, b"no PTX at all", cuda.jit_input_type.PTX))
print(message(DynamicModule().add_data, b"data", cuda.jit_input_type.OBJECT))
print(message(DynamicModule().add_file, "/nowhere/x.ptx", cuda.jit_input_type.PTX))
""")
    for line, words in zip(lines, (
            "undefined reference to '_Z7missingi' in 'caller.ptx'",
            "multiple definition of 'shared', first in 'one.ptx', then in 'two.ptx'",
            "neither PTX nor machine code", "links PTX", "No such file"), strict=True):
        assert words in line


def test_names_that_only_one_text_sees_are_kept_apart():
    text = _link(".global .b32 a;\n.visible .entry f() { mov.u64 %rd1, a; ret; }",
                 ".global .b32 a;\n.visible .entry g() { mov.u64 %rd1, a; ret; }")
    assert text.count("a$text0") == text.count("a$text1") == 2
    assert ".entry f()" in text and ".entry g()" in text


def test_a_strong_definition_goes_before_a_weak_one():
    weak = ".weak .func w() { ret; }"
    strong = ".visible .func w() { bar.sync 0; ret; }"
    for texts in ((weak, strong), (strong, weak), (weak, strong, weak)):
        text = _link(*texts)
        assert ".weak" not in text and text.count("bar.sync") == 1
    assert _link(weak, weak).count(".weak") == 1


def test_a_common_definition_gives_way_to_a_strong_one():
    common, strong = ".common .global .b32 c;", ".visible .global .b32 c = 7;"
    for texts in ((common, strong), (strong, common)):
        text = _link(*texts)
        assert "= 7" in text and ".common" not in text


def test_a_declaration_before_its_body_in_the_same_text_is_no_second_definition():
    text = _link(".visible .func f();\n.visible .func f() { ret; }", ".extern .func f();")
    assert text.count("{") == 1 and ".extern" not in text


def test_lines_keep_their_files():
    body = (".visible .entry {}()\n{{\n.loc 1 3 0\n"
            ".loc 1 5 0, function_name $x, inlined_at 1 9 2\n}}")
    text = _link(body.format("f") + '\n.file 1 "one.cu"', body.format("g") + '\n.file 1 "two.cu"')
    assert '.file\t1 "one.cu"' in text and '.file\t2 "two.cu"' in text
    assert ".loc 2 5 0, inlined_at 2 9 2" in text and "function_name" not in text


def test_the_newest_version_counts_and_the_target_is_the_devices():
    text = ptx_link.link([("a", HEAD), ("b", HEAD.replace("7.0", "8.10"))], "sm_80", False)
    assert text.startswith(".version 8.10\n.target sm_80\n")


@pytest.mark.parametrize("text", ["", "rubbish", ".visible .entry f() {"])
def test_what_is_no_ptx_is_an_error(text):
    with pytest.raises(ptx_link.LinkError):
        ptx_link.link([("a", text)], "sm_80", False)
