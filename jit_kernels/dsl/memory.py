"""Arrays of a kernel: loads, stores, views and prefetches through typed pointers.

Indices count elements of the array's own type. A vector load touches exactly the lanes it names:
kernels never read past an operand's stated size.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from llvmlite import ir

from jit_kernels.dsl.intrinsics import masked_load, masked_store, prefetch
from jit_kernels.dsl.trace import PTR, current, llvm_type
from jit_kernels.dsl.values import (
    VECTOR_LANES,
    Scalar,
    Value,
    broadcast,
    constant,
    index,
    lane_indices,
)
from jit_kernels.types import BOOL, I64, U8, DType

__all__ = ["Array", "VectorIndex", "pointer_at", "stack_array", "tail_mask"]

D = TypeVar("D", bound=DType)
E = TypeVar("E", bound=DType)


class VectorIndex:
    """Sixteen consecutive indices from `base`; `mask` switches off those past the end."""

    __slots__ = ("base", "mask")

    def __init__(self, base: Value[I64], mask: Value[BOOL] | None = None) -> None:
        self.base = base
        self.mask = mask


Index = Value[I64] | VectorIndex | int


class Array(Generic[D]):
    """A pointer to elements of `dtype`."""

    __slots__ = ("dtype", "pointer")

    def __init__(self, pointer: Any, dtype: type[D]) -> None:
        self.pointer = pointer
        self.dtype = dtype

    def _at(self, position: Value[I64] | int) -> Any:
        element = llvm_type(self.dtype)
        return current().builder.gep(self.pointer, [index(position).ir], source_etype=element)

    @property
    def _align(self) -> int:
        return max(1, self.dtype.bits // 8)

    def offset(self, elements: Value[I64] | int) -> Array[D]:
        """The array that begins `elements` further on."""
        return Array(self._at(elements), self.dtype)

    def __add__(self, elements: Value[I64] | int) -> Array[D]:
        return self.offset(elements)

    def view(self, dtype: type[E]) -> Array[E]:
        """The same memory read as `dtype`."""
        return Array(self.pointer, dtype)

    def address(self) -> Value[I64]:
        """The address as an integer."""
        return Value(current().builder.ptrtoint(self.pointer, llvm_type(I64)), I64)

    def hidden(self) -> Array[D]:
        """The same memory behind a pointer that LLVM cannot follow.

        What is stored through it stays in memory: LLVM will not carry it from one round of a
        loop to the next in registers that it does not have.
        """
        copy_type = ir.FunctionType(PTR, [PTR])
        return Array(
            current().builder.asm(copy_type, "", "=r,0", [self.pointer], False), self.dtype
        )

    def __getitem__(self, position: Index) -> Value[D]:
        if isinstance(position, VectorIndex):
            if position.mask is not None:
                where = self._at(position.base)
                return masked_load(where, self.dtype, position.mask, self._align)
            return self.vector(position.base)
        loaded = current().load(self._at(position), llvm_type(self.dtype), self._align)
        return Value(loaded, self.dtype)

    def __setitem__(self, position: Index, value: Value[D] | Scalar) -> None:
        masked = isinstance(position, VectorIndex)
        if not isinstance(value, Value):
            value = constant(value, self.dtype, VECTOR_LANES if masked else 1)
        if isinstance(position, VectorIndex):
            if position.mask is not None:
                where = self._at(position.base)
                masked_store(broadcast(value), where, position.mask, self._align)
                return
            value, position = broadcast(value), position.base
        current().store(value.ir, self._at(position), self._align)

    def vector(self, position: Value[I64] | int, lanes: int = VECTOR_LANES) -> Value[D]:
        """`lanes` consecutive elements."""
        loaded = current().load(self._at(position), llvm_type(self.dtype, lanes), self._align)
        return Value(loaded, self.dtype, lanes)

    def broadcast(self, position: Value[I64] | int, lanes: int = VECTOR_LANES) -> Value[D]:
        """One element in every lane."""
        return broadcast(self[position], lanes)

    def prefetch(self, bytes_ahead: Value[I64] | int, locality: int = 3) -> None:
        """Ask for the cache line `bytes_ahead` of the start; never faults."""
        prefetch(self.view(U8)._at(bytes_ahead), locality)


def tail_mask(count: Value[I64]) -> Value[BOOL]:
    """The first `count` (0..15) of sixteen lanes."""
    return lane_indices(I64) < broadcast(count)


def stack_array(dtype: type[D], count: int) -> Array[D]:
    """`count` uninitialised elements on the stack, 64-byte aligned."""
    return Array(current().stack(llvm_type(dtype), max(2, count)), dtype)


def pointer_at(words: Array[I64], position: Value[I64] | int, dtype: type[D]) -> Array[D]:
    """The array whose address is stored as a 64-bit word."""
    address = words[position]
    return Array(current().builder.inttoptr(address.ir, PTR), dtype)
