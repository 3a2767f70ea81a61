"""Devices, contexts, streams, events, threads."""

from __future__ import annotations


def test_the_device_says_what_it_is(passes):
    passes("""
        assert cuda.Device.count() == 1 and device.name() == "CPU driver (sm_80)"
        assert device.compute_capability() == (8, 0) and cuda.get_driver_version() == 13000
        assert cuda.Device(device.pci_bus_id()) == device
        attributes = device.get_attributes()
        Attribute = cuda.device_attribute
        assert attributes[Attribute.MAX_THREADS_PER_BLOCK] == 1024
        assert attributes[Attribute.WARP_SIZE] == 32
        assert attributes[Attribute.MAX_SHARED_MEMORY_PER_BLOCK] == 48 * 1024
        assert len(attributes) > 80
        assert "no device 1" in message(cuda.Device, 1)
        from pycuda.tools import DeviceData, OccupancyRecord
        assert OccupancyRecord(DeviceData(), 256).occupancy == 1
    """)


def test_contexts_are_pushed_popped_and_own_what_is_made_in_them(passes):
    passes("""
        free = cuda.mem_get_info()[0]
        module = SourceModule("__global__ void k(int *a) { *a = 1; }")
        k, a = module.get_function("k"), cuda.mem_alloc(512)
        second = device.make_context()
        assert cuda.Context.get_device() == device and second.get_api_version() == 3020
        b = cuda.mem_alloc(1024)
        assert cuda.mem_get_info()[0] == free - 1536
        assert "another context" in message(k, b, block=(1, 1, 1))
        second.pop()
        k(a, block=(1, 1, 1))
        second.push()
        second.pop()
        second.detach()
        assert cuda.mem_get_info()[0] == free - 512
        k(a, block=(1, 1, 1))
        context.pop()
        for call in (lambda: k(a, block=(1, 1, 1)), lambda: cuda.mem_alloc(4), cuda.Stream,
                     lambda: cuda.memcpy_htod(a, np.zeros(1)), cuda.Context.synchronize):
            error = message(call)
            assert "no context is current" in error or "no currently active" in error, error
        context.push()
        k(a, block=(1, 1, 1))
        stack = cuda.Context.get_limit(cuda.limit.STACK_SIZE)
        cuda.Context.set_limit(cuda.limit.STACK_SIZE, 2 * stack)
        assert cuda.Context.get_limit(cuda.limit.STACK_SIZE) == 2 * stack
        cuda.Context.set_cache_config(cuda.func_cache.PREFER_L1)
        assert cuda.Context.get_cache_config() == cuda.func_cache.PREFER_L1
    """)


def test_the_primary_context_is_shared_by_who_retains_it(passes):
    passes("""
        context.pop()
        one, two = device.retain_primary_context(), device.retain_primary_context()
        assert one == two
        one.push()
        a = cuda.mem_alloc(16)
        cuda.memcpy_htod(a, np.arange(4, dtype=np.int32))
        one.pop()
        one.detach()
        two.push()
        assert (cuda.from_device(a, 4, np.int32) == np.arange(4)).all()
        two.pop()
        del a
        two.detach()
        context.push()
    """)


def test_events_measure_the_hosts_clock(passes):
    passes("""
        import time
        start, end = cuda.Event(), cuda.Event()
        assert "has not been recorded" in message(end.time_since, start)
        start.record()
        time.sleep(0.05)
        end.record(cuda.Stream()).synchronize()
        assert 50 <= end.time_since(start) < 500 and start.query()
        assert abs(start.time_till(end) - end.time_since(start)) < 1e-3
        untimed = cuda.Event(cuda.event_flags.DISABLE_TIMING)
        untimed.record()
        assert "without timing" in message(untimed.time_since, start)
        stream = cuda.Stream()
        stream.wait_for_event(end)
        assert stream.is_done()
    """)


def test_threads_with_contexts_of_their_own_work_at_once(passes):
    passes("""
        import threading
        SOURCE = "__global__ void add(int *a, int n) { a[blockIdx.x * 32 + threadIdx.x] += n; }"
        wrong = []

        def work(n):
            own = device.make_context()
            try:
                add = SourceModule(SOURCE).get_function("add")
                for _ in range(20):
                    a = cuda.to_device(np.zeros(320, np.int32))
                    add(a, np.int32(n), block=(32, 1, 1), grid=(10, 1))
                    if (cuda.from_device(a, 320, np.int32) != n).any():
                        wrong.append(n)
                    if "block.x is 2,000" not in message(add, a, np.int32(1), block=(2000, 1, 1)):
                        wrong.append("text")
            finally:
                own.pop()

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not wrong, wrong
    """)


def test_waiting_for_the_context_a_stream_or_an_event_waits_for_other_threads_launches(passes):
    passes("""
        import threading, time
        module = SourceModule("__global__ void busy(int *a, int n) {"
                              "    for (int i = 0; i < n; i++) a[0] = a[0] * 3 + 1; }")
        busy = module.get_function("busy")
        a, stream = cuda.to_device(np.zeros(1, np.int32)), cuda.Stream()
        busy(a, np.int32(1), block=(1, 1, 1))
        rounds, took = 1000, 0.0
        while took < 0.4:
            rounds, start = 2 * rounds, time.perf_counter()
            busy(a, np.int32(rounds), block=(1, 1, 1))
            took = time.perf_counter() - start
        ends = {}

        def launch():
            context.push()
            busy(a, np.int32(rounds), block=(1, 1, 1), stream=stream)
            ends["launch"] = time.perf_counter()
            context.pop()

        for wait in (context.synchronize, stream.synchronize,
                     lambda: cuda.Event().record(stream).synchronize()):
            thread = threading.Thread(target=launch)
            thread.start()
            while stream.is_done():
                time.sleep(0.001)
            wait()
            ended = time.perf_counter()
            thread.join()
            assert ended > ends["launch"] - 0.1, (ended, ends)
            assert stream.is_done()
    """)


def test_what_is_not_implemented_says_so_by_name(passes):
    lines = passes("""
        print(message(cuda.TextureReference))
        print(message(cuda.initialize_profiler, "a", "b", cuda.profiler_output_mode.CSV)
              if hasattr(cuda, "initialize_profiler") else "")
        cuda.start_profiler()
        cuda.stop_profiler()
        import ctypes
        driver, text = ctypes.CDLL("libcuda.so.1"), ctypes.c_char_p()
        assert driver.cuGLInit() == 801
        driver.cuGetErrorString(801, ctypes.byref(text))
        print(text.value.decode())
        driver.cuGetErrorString(801, ctypes.byref(text))
        print(text.value.decode())
        driver.cuGetErrorName(700, ctypes.byref(text))
        print(text.value.decode())
    """)
    assert "does not support cuTexRefCreate" in lines[0]
    assert lines[-3:] == ["the CPU driver does not support cuGLInit", "operation not supported",
                          "CUDA_ERROR_ILLEGAL_ADDRESS"]


def test_a_defect_of_the_driver_is_an_error_with_its_place(passes):
    lines = passes("""
        from helpers.cpu_driver import device as ours
        ours.total_memory = lambda: 1 / 0
        print(message(cuda.mem_alloc, 4))
    """)
    assert lines[0].startswith("Error: cuMemAlloc failed: a defect of the CPU driver: "
                               "ZeroDivisionError at ")
