"""LLVM IR -> machine code in this process, with a cache of object files on disk.

The cache's key is the IR, the processor and LLVM's version, so that a cached file is never stale.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import tempfile
import threading
from pathlib import Path

import llvmlite.binding as llvm

_lock = threading.Lock()
_identity = ""
cache_folder = Path(__file__).resolve().parents[2] / ".cache" / "simt"


class Code:
    """Machine code of one IR module; `address(name)` gives a function's address."""

    def __init__(self, engine: llvm.ExecutionEngine):
        self._engine = engine

    def address(self, name: str) -> int:
        return self._engine.get_function_address(name)


def _target() -> llvm.TargetMachine:
    """A new description of this processor (an execution engine takes ownership of its own)."""
    global _identity
    if not _identity:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    _identity = f"{llvm.llvm_version_info} {cpu} {features}"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, jit=True
    )


def wide_vectors() -> bool:
    """Whether the processor has 512-bit vectors."""
    return llvm.get_host_cpu_features().get("avx512vl", False)


def compile_ir(ir: str) -> Code:
    """Compiles a module. Raises RuntimeError with LLVM's message if the IR is not well formed."""
    with _lock:
        machine = _target()
        if wide_vectors():
            ir = _prefer_512(ir)
        key = hashlib.sha256((ir + _identity).encode()).hexdigest()
        path = cache_folder / f"{key}.o"
        try:
            data = path.read_bytes()
        except OSError:
            data = _object_code(ir, machine)
            _keep(path, data)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
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
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False  # the code is vectors already
    options.loop_unrolling = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    return machine.emit_object(module)


def _keep(path: Path, data: bytes) -> None:
    """Writes a cache file in one step; a folder that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(temporary, path)
    except OSError:
        return


RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # @run(context); releases the GIL while it runs
