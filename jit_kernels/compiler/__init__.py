"""From IR text to machine code in this process: target, object cache, linking."""

from __future__ import annotations

from jit_kernels.compiler.cache import ObjectCache
from jit_kernels.compiler.jit import Compiler, default_compiler
from jit_kernels.compiler.target import emit_assembly, emit_object, optimised_ir

__all__ = [
    "Compiler",
    "ObjectCache",
    "default_compiler",
    "emit_assembly",
    "emit_object",
    "optimised_ir",
]
