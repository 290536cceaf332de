"""The runtime's own machine code: traced, compiled and linked once per compiler.

Knows which functions there are; knows nothing of threads or programs at work.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from jit_kernels.compiler import Compiler, emit_object
from jit_kernels.compiler.target import llvm_version
from jit_kernels.isa import Isa
from jit_kernels.runtime.native import NativeModule
from jit_kernels.runtime.pool_code import emit_pool
from jit_kernels.runtime.walker import WALKERS, emit_walkers

__all__ = ["native_addresses", "native_ir"]

_SYMBOLS = ["start", "run", "stop", "read_cycles", *WALKERS]


@lru_cache(maxsize=8)
def native_ir(isa: Isa) -> str:
    """The runtime's module for `isa`: pool, barrier and walkers."""
    module = NativeModule(isa, "jit_kernels_runtime")
    emit_pool(module)
    emit_walkers(module)
    return str(module)


def native_addresses(compiler: Compiler) -> dict[str, int]:
    """Addresses of the runtime's functions, valid while `compiler` lives."""
    isa = compiler.isa
    text = native_ir(isa)
    parts = (text, isa.triple, isa.cpu, isa.features, llvm_version())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return compiler.addresses(key, _SYMBOLS, lambda: emit_object(text, isa))
