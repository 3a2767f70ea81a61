"""Device, page-locked and managed memory, copies and fills, as PyCUDA uses them."""

from __future__ import annotations


def test_a_copy_comes_back_as_it_went(passes):
    passes("""
        a = np.random.default_rng(1).standard_normal(100_003).astype(np.float32)
        on_device, back = cuda.mem_alloc(a.nbytes), np.empty_like(a)
        cuda.memcpy_htod(on_device, a)
        cuda.memcpy_dtoh(back, on_device)
        assert (back == a).all()
        second = cuda.mem_alloc(a.nbytes)
        cuda.memcpy_dtod(second, on_device, a.nbytes)
        assert (cuda.from_device_like(second, a) == a).all()
        stream, back = cuda.Stream(), np.empty_like(a)
        cuda.memcpy_htod_async(on_device, a[::-1].copy(), stream)
        cuda.memcpy_dtod_async(second, on_device, a.nbytes, stream)
        cuda.memcpy_dtoh_async(back, second, stream)
        stream.synchronize()
        assert (back == a[::-1]).all()
        part = np.empty(10, np.float32)
        cuda.memcpy_dtoh(part, int(on_device) + 4 * 5)
        assert (part == a[::-1][5:15]).all()
    """)


def test_fills_write_their_elements_and_nothing_else(passes):
    passes("""
        for memset, dtype, value in ((cuda.memset_d8, np.uint8, 0xA5),
                                     (cuda.memset_d16, np.uint16, 0xBEEF),
                                     (cuda.memset_d32, np.uint32, 0x3F800001)):
            on_device = cuda.mem_alloc(4096)
            cuda.memset_d8(on_device, 0, 4096)
            memset(int(on_device) + 64, value, 77)
            got = cuda.from_device(on_device, 4096 // np.dtype(dtype).itemsize, dtype)
            first = 64 // np.dtype(dtype).itemsize
            assert (got[first:first + 77] == value).all()
            assert not got[:first].any() and not got[first + 77:].any()
        on_device, pitch = cuda.mem_alloc_pitch(20, 6, 4)
        cuda.memset_d8(on_device, 0, pitch * 6)
        cuda.memset_d2d32(on_device, pitch, 7, 5, 6)
        got = cuda.from_device(on_device, (6, pitch // 4), np.uint32)
        assert (got[:, :5] == 7).all() and not got[:, 5:].any()
        cuda.memset_d8_async(on_device, 1, 10, cuda.Stream())
    """)


def test_boxes_of_two_and_three_dimensions_are_copied(passes):
    passes("""
        a = np.arange(7 * 12, dtype=np.float32).reshape(7, 12)
        on_device, pitch = cuda.mem_alloc_pitch(12 * 4, 7, 4)
        assert pitch % 512 == 0
        copy = cuda.Memcpy2D()
        copy.set_src_host(a)
        copy.set_dst_device(on_device)
        copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 48, pitch, 48, 7
        copy(aligned=True)
        block, back = np.zeros((3, 4), np.float32), cuda.Memcpy2D()
        back.set_src_device(on_device)
        back.set_dst_host(block)
        back.src_x_in_bytes, back.src_y, back.src_pitch = 8, 2, pitch
        back.dst_pitch, back.width_in_bytes, back.height = 16, 16, 3
        back(cuda.Stream())
        assert (block == a[2:5, 2:6]).all()
        cube = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
        there = cuda.mem_alloc(cube.nbytes)
        cuda.memcpy_htod(there, cube)
        part, copy = np.zeros((2, 3, 4), np.int32), cuda.Memcpy3D()
        copy.set_src_device(there)
        copy.set_dst_host(part)
        copy.src_x_in_bytes, copy.src_y, copy.src_z = 4, 1, 2
        copy.src_pitch, copy.src_height, copy.dst_pitch, copy.dst_height = 24, 5, 16, 3
        copy.width_in_bytes, copy.height, copy.depth = 16, 3, 2
        copy()
        assert (part == cube[2:4, 1:4, 1:5]).all()
    """)


def test_cuda_arrays_hold_what_is_copied_to_them(passes):
    passes("""
        a = np.random.default_rng(2).standard_normal((5, 8)).astype(np.float32)
        array, back = cuda.matrix_to_array(a, "C"), np.zeros_like(a)
        copy = cuda.Memcpy2D()
        copy.set_src_array(array)
        copy.set_dst_host(back)
        copy.dst_pitch, copy.width_in_bytes, copy.height = 32, 32, 5
        copy(aligned=False)
        assert (back == a).all() and array.get_descriptor().width == 8
        array.free()
    """)


def test_page_locked_and_managed_memory_is_the_devices_too(passes):
    passes("""
        kernel = SourceModule('''
            __global__ void twice(float *a, int n) { for (int i = 0; i < n; i++) a[i] *= 2; }
        ''').get_function("twice")
        host = cuda.pagelocked_empty(100, np.float32,
                                     mem_flags=cuda.host_alloc_flags.DEVICEMAP)
        host[:] = 1
        kernel(np.intp(host.base.get_device_pointer()), np.int32(100), block=(1, 1, 1))
        assert (host == 2).all()
        managed = cuda.managed_empty(100, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
        managed[:] = 3
        kernel(managed, np.int32(100), block=(1, 1, 1))
        context.synchronize()
        assert (managed == 6).all()
    """)


def test_memory_is_bounded_counted_and_given_back(passes):
    passes("""
        free, total = cuda.mem_get_info()
        assert total == device.total_memory() and total <= 16 << 30
        host = cuda.pagelocked_empty(1 << 20, np.uint8)
        assert cuda.mem_get_info() == (free, total)
        held = cuda.mem_alloc(1 << 20)
        assert cuda.mem_get_info() == (free - (1 << 20), total)
        error = message(cuda.mem_alloc, total)
        assert error.startswith("MemoryError: cuMemAlloc failed: out of memory: ")
        held.free()
        assert cuda.mem_get_info() == (free, total)
        base, size = cuda.mem_get_address_range(int(held_again := cuda.mem_alloc(100)) + 50)
        assert (base, size) == (int(held_again), 100)
    """)


def test_the_devices_memory_can_be_chosen(python, tmp_path):
    script = tmp_path / "small.py"
    script.write_text("import pycuda.autoinit, pycuda.driver as cuda\n"
                      "print(pycuda.autoinit.device.total_memory(), *cuda.mem_get_info())\n"
                      "held = [cuda.mem_alloc(1 << 28) for _ in range(2)]\n")

    def run(gib):
        return python("-m", "helpers.cpu_driver", script, MATMUL_CPU_MEMORY=gib)

    assert run("0.5").stdout.split() == 3 * [str(1 << 29)] and run("0.5").returncode == 0
    small = run("0.375")
    assert small.stdout.split() == 3 * [str(3 << 27)]
    assert "MemoryError: cuMemAlloc failed: out of memory: 268,435,456 bytes" in small.stderr
    assert "MATMUL_CPU_MEMORY is 'much'; it is a number of GiB" in run("much").stderr


def test_a_wild_pointer_is_an_error_that_says_where_it_points(passes):
    lines = passes("""
        a = np.zeros(1000, np.float32)
        there = cuda.mem_alloc(a.nbytes)
        for call, address in ((cuda.memcpy_htod, int(there) + 8), (cuda.memcpy_htod, 0),
                              (cuda.memcpy_htod, 123456)):
            print(message(call, address, a))
        print(message(cuda.memcpy_dtoh, a, int(there) - 4))
        print(message(cuda.memcpy_dtod, there, int(there) + 4, 4000))
        print(message(cuda.memset_d32, there, 1, 1001))
        print(message(cuda.memset_d32, int(there) + 2, 1, 1))
        there.free()
        print(message(cuda.memcpy_htod, int(cuda.mem_alloc(10)) + (1 << 30), a))
        cuda.memcpy_htod(0, np.zeros(0))
    """)
    assert all(line.startswith("LogicError: cuMem") for line in lines), lines
    for line, words in zip(lines, ("8 bytes past its end", "null pointer", "no allocation",
                                   "before the start", "past its end", "past its end",
                                   "not aligned", "copy to the device"), strict=True):
        assert words in line


def test_freeing_what_is_not_allocated_says_why(program):
    done = program("""
        there = cuda.mem_alloc(1000)
        import ctypes
        driver = ctypes.CDLL("libcuda.so.1")
        for address in (int(there) + 8, 123456):
            code = driver.cuMemFree_v2(ctypes.c_size_t(address))
            text = ctypes.c_char_p()
            driver.cuGetErrorString(code, ctypes.byref(text))
            print(code, text.value.decode())
        there.free()
        print(message(there.free))
        assert driver.cuMemFree_v2(ctypes.c_size_t(int(there))) == 1
        assert driver.cuMemFree_v2(ctypes.c_size_t(0)) == 0
    """)
    assert (done.returncode, done.stderr) == (0, "")
    inside, wild, twice = done.stdout.splitlines()
    assert inside.startswith("1 ") and "8 bytes inside the allocation of 1,000 bytes" in inside
    assert wild.startswith("1 ") and "no allocation starts there" in wild
    assert twice.startswith("LogicError: device_allocation::free failed")


def test_gpuarrays_and_memory_pools_work(passes):
    passes("""
        import pycuda.gpuarray as gpuarray
        from pycuda.tools import DeviceMemoryPool, PageLockedMemoryPool
        a = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
        pool = DeviceMemoryPool()
        on_device = gpuarray.to_gpu(a, allocator=pool.allocate)
        assert (on_device.get() == a).all()
        assert ((2 * on_device + 1).get() == 2 * a + 1).all()
        del on_device
        pool.free_held()
        assert PageLockedMemoryPool().allocate((10,), np.float32).shape == (10,)
        assert (gpuarray.zeros(10, np.int32).fill(4).get() == 4).all()
    """)
