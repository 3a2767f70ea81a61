"""LLVM IR -> machine code in this process."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import re
import threading

import llvmlite.binding as llvm

# A processor to make code for instead of this one, to try what machines with less do: haswell has
# no 512-bit vectors, nehalem no fused multiply-add either. With what is asked for by `has`.
VARIABLE = "MATMUL_PROCESSOR"
PROCESSORS = {"haswell": "+f16c", "nehalem": "-f16c"}
LARGE = 1_200_000  # characters of IR from which on it is optimised less, to compile in seconds

_lock = threading.Lock()  # LLVM's own state is shared


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


# The process must not take LLVM down while a thread compiles (one that nobody waits for, since an
# interrupt): at exit the lock is taken, and kept. A child has none of its parent's threads.
os.register_at_fork(after_in_child=_renew_lock)
atexit.register(lambda: _lock.acquire())


class Code:
    """Machine code of one IR module; `address(name)` gives a function's address."""

    def __init__(self, engine: llvm.ExecutionEngine):
        self._engine = engine

    def address(self, name: str) -> int:
        return self._engine.get_function_address(name)


@functools.cache
def _processor() -> tuple[str, str]:
    """LLVM's name of the processor to make code for, and its features beside those of the name."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    chosen = os.environ.get(VARIABLE)
    if chosen:
        if chosen not in PROCESSORS:
            raise ValueError(f"{VARIABLE} is {chosen!r}; it can be {' or '.join(PROCESSORS)}")
        return chosen, PROCESSORS[chosen]
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def identity() -> str:
    """LLVM's version and the processor, on which machine code depends."""
    return " ".join(map(str, (llvm.llvm_version_info, *_processor())))


def _target() -> llvm.TargetMachine:
    """A new description of the processor (an execution engine takes ownership of its own)."""
    cpu, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, jit=True
    )


def has(feature: str) -> bool:
    """Whether the processor has something, by LLVM's name for it."""
    return f"+{feature}" in _processor()[1].split(",")


def object_code(ir: str) -> bytes:
    """An object file. Raises RuntimeError with LLVM's message if the IR is not well formed."""
    with _lock:
        return _object_code(_prefer_512(ir) if has("avx512vl") else ir, _target())


def load(data: bytes) -> Code:
    """Puts an object file into memory, ready to be called."""
    with _lock:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        return Code(engine)


def _prefer_512(ir: str) -> str:
    """Asks for 512-bit vectors in every function, where LLVM would be content with 256."""
    ir = re.sub(r"^(define [^{]*)\{", r"\1#0 {", ir, flags=re.M)
    return ir + (
        '\nattributes #0 = { "prefer-vector-width"="512" "min-legal-vector-width"="512" }\n'
    )


def _object_code(ir: str, machine: llvm.TargetMachine) -> bytes:
    module = llvm.parse_assembly(ir)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1 if len(ir) > LARGE else 2)
    options.loop_vectorization = False  # the code is vectors already
    options.loop_unrolling = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    return machine.emit_object(module)


RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # @run(context); releases the GIL while it runs
