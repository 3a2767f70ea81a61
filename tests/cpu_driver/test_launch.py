"""Modules, functions and launches: what works, and what is refused as a GPU's driver refuses it."""

from __future__ import annotations

KERNELS = """
SOURCE = '''
#line 1 "kernels.cu"
__constant__ float scale[4];
__device__ int counter;
__global__ void add(float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += b[i];
}
__global__ void past(float *a) {
    a[threadIdx.x] = 1;
}
__global__ void scaled(float *a) { a[threadIdx.x] = scale[threadIdx.x & 3]; counter = 7; }
__global__ void reversed(float *a) {
    __shared__ float s[2048];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void dynamic(float *a, int n) {
    extern __shared__ float s[];
    for (int i = 0; i < n; i++) s[i] = i;
    a[0] = s[n - 1];
}
__global__ void __launch_bounds__(128) bounded(float *a) { a[0] = 1; }
__global__ void stopped() { asm volatile("trap;"); }
'''
module = SourceModule(SOURCE)
"""


def test_a_kernel_runs_and_its_attributes_are_those_of_ptxas(passes):
    lines = passes(KERNELS + """
add = module.get_function("add")
a, b = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
add(cuda.InOut(a), cuda.In(b), np.int32(1000), block=(256, 1, 1), grid=(4, 1))
assert (a == np.arange(1000) + 1).all()
there = cuda.to_device(a)
add.prepare("PPi").prepared_call((4, 1), (256, 1, 1), there, there, 1000)
assert (cuda.from_device_like(there, a) == 2 * a).all()
time = add.prepared_timed_call((4, 1), (256, 1, 1), there, there, 1000)()
assert 0 < time < 1
add.prepared_async_call((4, 1), (256, 1, 1), cuda.Stream(), there, there, 1000)
assert (cuda.from_device_like(there, a) == 8 * a).all()
reversed = module.get_function("reversed")
for f in (add, reversed, module.get_function("bounded")):
    print(f.num_regs, f.shared_size_bytes, f.local_size_bytes, f.max_threads_per_block,
          f.binary_version)
print(module.get_function("scaled").const_size_bytes)
""")
    registers = [int(line.split()[0]) for line in lines[:3]]
    assert all(4 <= count <= 32 for count in registers)
    assert [line.split()[1:] for line in lines[:3]] == [
        ["0", "0", "1024", "80"], ["8192", "0", "1024", "80"], ["0", "0", "128", "80"]]
    assert lines[3] == "16"


def test_module_variables_are_found_by_name(passes):
    passes(KERNELS + """
address, size = module.get_global("scale")
assert size == 16
cuda.memcpy_htod(address, np.arange(4, dtype=np.float32))
a = np.empty(8, np.float32)
module.get_function("scaled")(cuda.Out(a), block=(8, 1, 1))
assert (a == [0, 1, 2, 3, 0, 1, 2, 3]).all()
address, size = module.get_global("counter")
assert cuda.from_device(address, 1, np.int32)[0] == 7
""")


def test_a_missing_name_is_told_what_there_is(passes):
    lines = passes(KERNELS + """
print(message(module.get_function, "ad"))
print(message(module.get_global, "nothing"))
print(message(SourceModule("template <class T> __global__ void t(T *a) {} "
                           "template __global__ void t(int *);", no_extern_c=True).get_function,
              "t"))
""")
    assert lines[0].startswith("LogicError: cuModuleGetFunction failed: named symbol not found: no "
                               "kernel 'ad' in this module; it has add, bounded,")
    assert "no variable 'nothing'" in lines[1] and "it has counter, scale" in lines[1]
    assert 'write extern "C"' in lines[2]


def test_launches_past_a_limit_are_refused(passes):
    lines = passes(KERNELS + """
a = cuda.mem_alloc(4096)
f = module.get_function("reversed")
for options in (dict(block=(1025, 1, 1)), dict(block=(32, 33, 1)), dict(block=(1, 1, 65)),
                dict(block=(0, 1, 1)), dict(block=(1, 1, 1), grid=(1, 65536)),
                dict(block=(1, 1, 1), grid=(0, 1)),
                dict(block=(1, 1, 1), shared=40961), dict(block=(1, 1, 1), shared=200_000)):
    print(message(f, a, **options))
print(message(module.get_function("bounded"), a, block=(129, 1, 1)))
f(a, block=(1, 1, 1), shared=40960)
""")
    for line, words in zip(lines, (
            "block.x is 1,025", "1,056 threads", "block.z is 65", "block.x is 0",
            "grid.y is 65,536", "grid.x is 0", "MAX_DYNAMIC_SHARED_SIZE_BYTES", "at most 166,912",
            "__launch_bounds__ allow 128"), strict=True):
        assert line.startswith("LogicError: cu") and words in line, line


def test_more_shared_memory_can_be_opted_in_to(passes):
    lines = passes(KERNELS + """
f, a = module.get_function("dynamic"), np.zeros(1, np.float32)
MAX = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
assert f.get_attribute(MAX) == 49152
assert device.max_shared_memory_per_block_optin == 166912
f.set_attribute(MAX, 100_000)
f(cuda.Out(a), np.int32(25_000), block=(1, 1, 1), shared=100_000)
assert a[0] == 24_999
print(message(f.set_attribute, MAX, 166_913))
print(message(f, cuda.Out(a), np.int32(1), block=(1, 1, 1), shared=100_004))
""")
    assert "at most 166,912 bytes" in lines[0]
    assert "100,004 bytes" in lines[1]


def test_too_many_registers_for_the_block_is_out_of_resources(passes):
    lines = passes("""
        terms = range(150)
        source = "__global__ void wide(float *a, int n) {" + "".join(
            f"float x{i} = a[{i} * n];" for i in terms) + "for (int j = 0; j < n; j++) {" + "".join(
            f"x{i} = x{i} * x{(i + 1) % 150} + x{(i + 7) % 150};" for i in terms) + "} a[0] = " + (
            " + ".join(f"x{i}" for i in terms)) + "; }"
        f = SourceModule(source).get_function("wide")
        assert f.num_regs > 128 and f.max_threads_per_block < 1024
        print(message(f, cuda.mem_alloc(4096), np.int32(0), block=(1024, 1, 1)))
        f(cuda.mem_alloc(4096), np.int32(0), block=(f.max_threads_per_block, 1, 1))
    """)
    assert lines[0].startswith("LaunchError: cuLaunchKernel failed: too many resources requested")
    assert "1,024 threads" in lines[0]


def test_occupancy_follows_from_what_ptxas_says(passes):
    passes(KERNELS + """
from pycuda.tools import DeviceData, OccupancyRecord
add = module.get_function("add")
found = OccupancyRecord(DeviceData(), 256, add.shared_size_bytes, add.num_regs)
assert (found.tb_per_mp, found.occupancy) == (8, 1), (found.tb_per_mp, found.occupancy)
for threads, registers, blocks in ((1024, 64, 1), (64, 255, 4), (256, 48, 5)):
    assert OccupancyRecord(DeviceData(), threads, 0, registers).tb_per_mp == blocks
""")


def test_a_block_gets_as_many_registers_as_a_multiprocessor_quarter_has():
    from helpers.cpu_driver.module import threads_for_registers

    # The last is an H200's own answer (a kernel of 168 registers).
    expected = {0: 1024, 32: 1024, 64: 1024, 65: 896, 96: 640, 128: 512, 255: 256, 168: 384}
    assert {n: threads_for_registers(n) for n in expected} == expected


def test_wrong_parameters_are_refused_not_misread(passes):
    lines = passes(KERNELS + """
add, a = module.get_function("add"), cuda.mem_alloc(4096)
print(message(add, a, a, block=(1, 1, 1)))
print(message(add, a, a, np.int32(1), np.int32(2), block=(1, 1, 1)))
print(message(add, a, a, np.int64(1), block=(1, 1, 1)))
print(message(add, block=(1, 1, 1)))
""")
    for line, kind, given in zip(lines, ("Logic", "Launch", "Launch", "Logic"), (16, 24, 24, 0),
                                 strict=True):
        assert line.startswith(f"{kind}Error: cuLaunchKernel failed: kernel add takes 3 "
                               "parameters, 20 bytes in all (8, 8, 4), but the launch gives "
                               f"{given} bytes"), line


def test_a_fault_names_its_place_and_the_next_launch_works(passes):
    lines = passes(KERNELS + """
a = cuda.mem_alloc(100)
print(message(module.get_function("past"), a, block=(32, 1, 1)))
print(message(module.get_function("stopped"), block=(1, 1, 1)))
b = np.ones(25, np.float32)
cuda.memcpy_htod(a, b)
module.get_function("add")(a, cuda.In(b), np.int32(25), block=(25, 1, 1))
assert (cuda.from_device_like(a, b) == 2).all()
""")
    fault, trap = lines
    assert fault.startswith("LogicError: cuLaunchKernel failed: kernel past, kernels.cu:8, block "
                            "(0, 0, 0), thread (25, 0, 0): ")
    assert "100-byte allocation" in fault
    assert trap.startswith("LaunchError: cuLaunchKernel failed: kernel stopped")


def test_images_that_are_no_ptx_are_refused_with_the_way_out(passes, tmp_path):
    lines = passes("""
        import warnings
        warnings.simplefilter("ignore")  # PyCUDA's, of an arch above the device's
        print(message(cuda.module_from_buffer, b"\\x7fELF" + bytes(100)))
        print(message(cuda.module_from_buffer, b"rubbish"))
        print(message(cuda.module_from_buffer, b""))
        print(message(cuda.module_from_buffer, b"\\xff\\xfe rubbish"))
        print(message(cuda.module_from_file, "nowhere.ptx"))
        head = b".version 9.0\\n.target sm_%d\\n.address_size 64\\n"
        print(message(cuda.module_from_buffer, head % 100))
        print(message(cuda.module_from_buffer, head % 80 + b"bad;\\n"))
        print(message(SourceModule, "__global__ void k() {}", arch="sm_90"))
        print(message(SourceModule, "__global__ void k() {}", arch="sm_75"))
    """)
    expected = (
        ("LogicError: cuModuleLoadDataEx failed: device kernel image is invalid - ", "nvcc --ptx"),
        ("LogicError", "neither PTX nor machine code"), ("LogicError", "neither PTX"),
        ("LogicError", "neither PTX"), ("RuntimeError: cuModuleLoad failed", "nowhere.ptx"),
        ("LogicError: cuModuleLoadDataEx failed: a PTX JIT compilation failed - ", "sm_100"),
        ("LogicError: cuModuleLoadDataEx failed: a PTX JIT compilation failed - ", "line 4"),
        ("RuntimeError: cuModuleLoadDataEx failed: no kernel image is available", "sm_90"),
        ("RuntimeError: cuModuleLoadDataEx failed: no kernel image is available", "sm_75"))
    lines.remove("ptxas fatal   : Ptx assembly aborted due to errors")
    for line, (start, words) in zip(lines, expected, strict=True):
        assert line.startswith(start) and words in line, line


def test_ptx_of_the_users_own_is_loaded(passes):
    passes("""
        from pycuda.compiler import compile
        ptx = compile("__global__ void three(int *a) { *a = 3; }", target="ptx")
        f, a = cuda.module_from_buffer(ptx).get_function("three"), np.zeros(1, np.int32)
        f(cuda.Out(a), block=(1, 1, 1))
        assert a[0] == 3 and f.num_regs > 0
        open("three.ptx", "wb").write(ptx)
        cuda.module_from_file("three.ptx").get_function("three")
        from pycuda.compiler import DynamicModule
        linked = DynamicModule()
        linked.add_source("__global__ void four(int *a) { *a = 4; }")
        linked.link()
        linked.get_function("four")(cuda.Out(a), block=(1, 1, 1))
        assert a[0] == 4
    """)


def test_the_calls_of_cuda_3_launch_too(passes):
    passes(KERNELS + """
import ctypes
from helpers.cpu_driver import handles
driver = ctypes.CDLL("libcuda.so.1")
add, a = module.get_function("add"), cuda.to_device(np.ones(8, np.float32))
handle = ctypes.c_size_t(next(number for number, what in handles._objects.items()
                              if getattr(what, "name", "") == "add"))
address = ctypes.c_uint64(int(a))
assert driver.cuFuncSetBlockShape(handle, 8, 1, 1) == 0
assert driver.cuParamSetSize(handle, 20) == 0
assert driver.cuParamSetv(handle, 0, ctypes.byref(address), 8) == 0
assert driver.cuParamSetv(handle, 8, ctypes.byref(address), 8) == 0
assert driver.cuParamSeti(handle, 16, 8) == 0
assert driver.cuLaunchGrid(handle, 1, 1) == 0
n = ctypes.c_int(8)
pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in (address, address, n)))
assert driver.cuLaunchKernel(handle, 1, 1, 1, 8, 1, 1, 0, None, pointers, None) == 0
assert (cuda.from_device(a, 8, np.float32) == 4).all()
""")
