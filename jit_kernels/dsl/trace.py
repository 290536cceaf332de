"""The function under construction: IR builder, entry block, and the current trace.

Knows how Python control flow becomes basic blocks; knows nothing of operators or kernels.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from llvmlite import ir

from jit_kernels.errors import TraceError
from jit_kernels.isa import Isa
from jit_kernels.types import DType

__all__ = ["PTR", "Trace", "current", "llvm_type"]

PTR = ir.PointerType()
_FLOATS: dict[int, ir.Type] = {16: ir.HalfType(), 32: ir.FloatType()}


def llvm_type(dtype: type[DType], lanes: int = 1) -> Any:
    """LLVM's type of `lanes` elements of `dtype`; a scalar for one lane."""
    scalar = _FLOATS[dtype.bits] if dtype.kind == "float" else ir.IntType(dtype.bits)
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


class Trace:
    """One LLVM function being written: `void name(i64 worker, i64 num_workers, ptr params)`."""

    def __init__(self, module: ir.Module, isa: Isa, name: str, function_type: Any) -> None:
        self.module = module
        self.isa = isa
        self.function: Any = ir.Function(module, function_type, name)
        self.function.attributes.add("nounwind")
        entry = self.function.append_basic_block("entry")
        self.builder: Any = ir.IRBuilder(entry)
        body = self.function.append_basic_block("body")
        self._entry_end: Any = self.builder.branch(body)
        self.builder.position_at_end(body)

    @contextmanager
    def active(self) -> Generator[Trace]:
        """Make this the trace that DSL operations write to."""
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)

    def block(self, name: str) -> Any:
        """Append an empty basic block."""
        return self.function.append_basic_block(name)

    def stack(self, element: Any, count: int = 1) -> Any:
        """Pointer to `count` elements on the stack, allocated once in the entry block."""
        here = self.builder.block
        self.builder.position_before(self._entry_end)
        slot = self.builder.alloca(ir.ArrayType(element, count) if count > 1 else element)
        slot.align = 64
        opaque = self.builder.bitcast(slot, PTR)
        self.builder.position_at_end(here)
        return opaque

    def load(self, pointer: Any, element: Any, align: int) -> Any:
        """Load an `element` from an opaque pointer."""
        return self.builder.load(pointer, typ=element, align=align)

    def store(self, value: Any, pointer: Any, align: int) -> None:
        """Store through an opaque pointer (the builder's own method wants a typed one)."""
        store: Any = ir.instructions.StoreInstr(self.builder.block, value, pointer)
        store.align = align
        self.builder._insert(store)  # pyright: ignore[reportPrivateUsage]

    def declare(self, name: str, result: Any, arguments: list[Any], var_arg: bool = False) -> Any:
        """The external function `name`, declared once per module."""
        known = self.module.globals.get(name)
        return known or ir.Function(
            self.module, ir.FunctionType(result, arguments, var_arg=var_arg), name
        )

    def call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        """Call the external function or intrinsic `name`."""
        function = self.declare(name, result, [argument.type for argument in arguments])
        return self.builder.call(function, arguments)


_CURRENT: ContextVar[Trace] = ContextVar("jit_kernels_trace")


def current() -> Trace:
    """The trace in progress; raises `TraceError` outside a kernel's body."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise TraceError("this operation only works inside a @kernel body") from None
