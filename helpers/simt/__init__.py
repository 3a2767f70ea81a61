"""A SIMT engine: runs the PTX of CUDA kernels on the CPU, exactly, a warp as vectors of 32 lanes.

    memory = Memory(1 << 30)
    module = Module(ptx_text, memory)
    module.functions["kernel"].launch(grid=(4, 4, 1), block=(32, 32, 1), parameters=packed)

From PTX to machine code: `ptx` reads it, `forms` and `names` check its instructions, `calls` and
`stack` expand calls of device functions, `flow` finds blocks and live registers, `scopes` where
lanes part and meet (`polling`: wait for each other), `shapes` which values are scalars, `codegen`
(with `emitter`, `instructions` and `access`, and for lanes that work together `warp`, `tensor` and
`async_copy`) writes LLVM IR, `jit` compiles it, `module` launches it on `memory`. What was made
once is kept on disk (`cache`, `image`).

What a kernel does can be counted (`rules`, `counting`, `costs`, `counts`), and the addresses of one
access looked at (`tracing`). Its races and bad accesses are found (`sanitizing`, `shadow`,
`sanitizer`, `program_order`) by code that compares every access with those before it.
"""

from .errors import Fault, Interrupted, InvalidPtx, OutOfMemory, SimtError, Unsupported
from .memory import Memory
from .module import Function, Module, plain_name

__all__ = [
    "Fault",
    "Function",
    "Interrupted",
    "InvalidPtx",
    "Memory",
    "Module",
    "OutOfMemory",
    "SimtError",
    "Unsupported",
    "plain_name",
]
