"""Scalars and vectors of a kernel: arithmetic, comparison, conversion, shuffles.

A `Value` is immutable; `Variable` is a mutable local that LLVM turns into registers. No operator
is ever reassociated or contracted: what is written is what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast

from llvmlite import ir

from jit_kernels.dsl.trace import current, llvm_type
from jit_kernels.errors import TraceError
from jit_kernels.types import BOOL, I32, I64, DType

__all__ = [
    "VECTOR_LANES",
    "Scalar",
    "Value",
    "Variable",
    "broadcast",
    "constant",
    "index",
    "lane_indices",
    "maximum",
    "minimum",
    "select",
    "zeros",
]

# The width of a kernel's vectors, whatever the registers: LLVM splits them. Reductions fold 16
# strided lanes, so results do not depend on the instruction set.
VECTOR_LANES = 16

D = TypeVar("D", bound=DType)
E = TypeVar("E", bound=DType)
Scalar = int | float


class Value(Generic[D]):
    """`lanes` elements of `dtype` in registers; operators work lane by lane."""

    __slots__ = ("dtype", "ir", "lanes")

    def __init__(self, ir_value: Any, dtype: type[D], lanes: int = 1) -> None:
        self.ir = ir_value
        self.dtype = dtype
        self.lanes = lanes

    def __repr__(self) -> str:
        return f"Value[{self.dtype.label} x {self.lanes}]"

    def _coerce(self, other: Value[D] | Scalar) -> tuple[Value[D], Value[D]]:
        """`self` and `other` with the same type and lanes."""
        if not isinstance(other, Value):
            return self, constant(other, self.dtype, self.lanes)
        if other.dtype is not self.dtype:
            raise TraceError(f"{self!r} and {other!r} differ in type: convert one with .to(...)")
        if self.lanes == other.lanes:
            return self, other
        if self.lanes == 1:
            return broadcast(self, other.lanes), other
        if other.lanes == 1:
            return self, broadcast(other, self.lanes)
        raise TraceError(f"{self!r} and {other!r} differ in lanes")

    def _binary(
        self, other: Value[D] | Scalar, name: str, float_name: str, swap: bool = False
    ) -> Value[D]:
        left, right = self._coerce(other)
        if swap:
            left, right = right, left
        method = float_name if self.dtype.kind == "float" else name
        if not method:
            raise TraceError(f"{self!r} has no such operator")
        result = getattr(current().builder, method)(left.ir, right.ir)
        return Value(result, self.dtype, left.lanes)

    def __add__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "add", "fadd")

    def __radd__(self, other: Scalar) -> Value[D]:
        return self._binary(other, "add", "fadd", swap=True)

    def __sub__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "sub", "fsub")

    def __rsub__(self, other: Scalar) -> Value[D]:
        return self._binary(other, "sub", "fsub", swap=True)

    def __mul__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "mul", "fmul")

    def __rmul__(self, other: Scalar) -> Value[D]:
        return self._binary(other, "mul", "fmul", swap=True)

    def __truediv__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "", "fdiv")

    def __rtruediv__(self, other: Scalar) -> Value[D]:
        return self._binary(other, "", "fdiv", swap=True)

    def __floordiv__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "udiv" if self.dtype.kind == "unsigned" else "sdiv", "")

    def __mod__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "urem" if self.dtype.kind == "unsigned" else "srem", "")

    def __and__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "and_", "")

    def __or__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "or_", "")

    def __xor__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "xor", "")

    def __lshift__(self, other: Value[D] | Scalar) -> Value[D]:
        return self._binary(other, "shl", "")

    def __rshift__(self, other: Value[D] | Scalar) -> Value[D]:
        """Shift right: arithmetic for signed types, logical for unsigned ones."""
        return self._binary(other, "lshr" if self.dtype.kind == "unsigned" else "ashr", "")

    def __neg__(self) -> Value[D]:
        if self.dtype.kind == "float":
            return Value(current().builder.fneg(self.ir), self.dtype, self.lanes)
        return 0 - self

    def _compare(self, operator: str, other: Value[D] | Scalar) -> Value[BOOL]:
        left, right = self._coerce(other)
        names = {"float": "fcmp_ordered", "signed": "icmp_signed", "unsigned": "icmp_unsigned"}
        compare = getattr(current().builder, names[self.dtype.kind])
        return Value(compare(operator, left.ir, right.ir), BOOL, left.lanes)

    def __lt__(self, other: Value[D] | Scalar) -> Value[BOOL]:
        return self._compare("<", other)

    def __le__(self, other: Value[D] | Scalar) -> Value[BOOL]:
        return self._compare("<=", other)

    def __gt__(self, other: Value[D] | Scalar) -> Value[BOOL]:
        return self._compare(">", other)

    def __ge__(self, other: Value[D] | Scalar) -> Value[BOOL]:
        return self._compare(">=", other)

    def equals(self, other: Value[D] | Scalar) -> Value[BOOL]:
        """Lane-wise equality (`==` stays Python's identity)."""
        return self._compare("==", other)

    def differs(self, other: Value[D] | Scalar) -> Value[BOOL]:
        """Lane-wise inequality."""
        return self._compare("!=", other)

    def is_nan(self) -> Value[BOOL]:
        """Lanes that are not a number."""
        result = current().builder.fcmp_unordered("uno", self.ir, self.ir)
        return Value(result, BOOL, self.lanes)

    def to(self, dtype: type[E]) -> Value[E]:
        """Convert every lane: widen by this type's signedness, truncate, or int <-> float.

        Float to narrower float is refused: LLVM 22 crashes or calls a library there.
        """
        if dtype is self.dtype:
            return cast("Value[E]", self)
        source_float, target_float = self.dtype.kind == "float", dtype.kind == "float"
        if source_float and target_float:
            if dtype.bits < self.dtype.bits:
                raise TraceError("narrow floats with integer arithmetic: see math.round_to_bf16")
            operation = "fpext"
        elif source_float:
            operation = "fptosi" if dtype.kind == "signed" else "fptoui"
        elif target_float:
            operation = "sitofp" if self.dtype.kind == "signed" else "uitofp"
        elif dtype.bits > self.dtype.bits:
            operation = "sext" if self.dtype.kind == "signed" else "zext"
        elif dtype.bits < self.dtype.bits:
            operation = "trunc"
        else:
            return Value(self.ir, dtype, self.lanes)
        result = getattr(current().builder, operation)(self.ir, llvm_type(dtype, self.lanes))
        return Value(result, dtype, self.lanes)

    def bits_as(self, dtype: type[E]) -> Value[E]:
        """The same bits read as `dtype`; the number of lanes follows."""
        lanes = self.lanes * self.dtype.bits // dtype.bits
        return Value(current().builder.bitcast(self.ir, llvm_type(dtype, lanes)), dtype, lanes)

    def lane(self, index: int) -> Value[D]:
        """One lane, known when the kernel is written."""
        position = ir.Constant(ir.IntType(32), index)
        return Value(current().builder.extract_element(self.ir, position), self.dtype)

    def shuffle(self, lanes: Sequence[int], other: Value[D] | None = None) -> Value[D]:
        """Lanes picked from `self` (0..n-1) and `other` (n..2n-1)."""
        second = other.ir if other is not None else ir.Constant(self.ir.type, ir.Undefined)
        mask_type = ir.VectorType(ir.IntType(32), len(lanes))
        mask = ir.Constant(mask_type, [ir.Constant(ir.IntType(32), k) for k in lanes])
        result = current().builder.shuffle_vector(self.ir, second, mask)
        return Value(result, self.dtype, len(lanes))

    def halves(self) -> tuple[Value[D], Value[D]]:
        """Lower and upper half of the lanes."""
        half = self.lanes // 2
        return self.shuffle(range(half)), self.shuffle(range(half, self.lanes))


class Variable(Generic[D]):
    """A mutable local. It must be given its first value where it is used."""

    __slots__ = ("_slot", "dtype", "lanes")

    def __init__(self, initial: Value[D]) -> None:
        self.dtype = initial.dtype
        self.lanes = initial.lanes
        self._slot = current().stack(llvm_type(self.dtype, self.lanes))
        self.set(initial)

    def set(self, value: Value[D] | Scalar) -> None:
        """Replace the value."""
        if not isinstance(value, Value):
            value = constant(value, self.dtype, self.lanes)
        elif value.lanes != self.lanes:
            value = broadcast(value, self.lanes)
        current().store(value.ir, self._slot, self._align)

    def get(self) -> Value[D]:
        """The value now."""
        loaded = current().load(self._slot, llvm_type(self.dtype, self.lanes), self._align)
        return Value(loaded, self.dtype, self.lanes)

    @property
    def _align(self) -> int:
        return min(64, max(1, self.dtype.bits * self.lanes // 8))


def constant(number: Scalar, dtype: type[D], lanes: int = 1) -> Value[D]:
    """`number` in every lane."""
    scalar = float(number) if dtype.kind == "float" else int(number)
    element = ir.Constant(llvm_type(dtype), scalar)
    if lanes == 1:
        return Value(element, dtype)
    return Value(ir.Constant(llvm_type(dtype, lanes), [element] * lanes), dtype, lanes)


def zeros(dtype: type[D], lanes: int = VECTOR_LANES) -> Value[D]:
    """A vector of zeros."""
    return Value(ir.Constant(llvm_type(dtype, lanes), None), dtype, lanes)


def lane_indices(dtype: type[D] = I32, lanes: int = VECTOR_LANES) -> Value[D]:
    """The vector 0, 1, 2, ..."""
    element = llvm_type(dtype)
    values = [ir.Constant(element, k) for k in range(lanes)]
    return Value(ir.Constant(llvm_type(dtype, lanes), values), dtype, lanes)


def broadcast(value: Value[D], lanes: int = VECTOR_LANES) -> Value[D]:
    """A scalar in every lane."""
    if value.lanes == lanes:
        return value
    builder, vector = current().builder, llvm_type(value.dtype, lanes)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value.ir, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
    return Value(builder.shuffle_vector(first, undefined, mask), value.dtype, lanes)


def select(condition: Value[BOOL], yes: Value[D] | Scalar, no: Value[D] | Scalar) -> Value[D]:
    """Lane-wise `yes if condition else no`; one of the two must be a Value. Raises TraceError."""
    if isinstance(yes, Value):
        yes, no = yes._coerce(no)  # pyright: ignore[reportPrivateUsage]
    elif isinstance(no, Value):
        no, yes = no._coerce(yes)  # pyright: ignore[reportPrivateUsage]
    else:
        raise TraceError("select needs a Value to know its type")
    lanes = max(condition.lanes, yes.lanes)
    yes, no = broadcast(yes, lanes), broadcast(no, lanes)
    return Value(current().builder.select(condition.ir, yes.ir, no.ir), yes.dtype, lanes)


def minimum(left: Value[D], right: Value[D] | Scalar) -> Value[D]:
    """Lane-wise minimum; where a lane is NaN, `right`'s."""
    return select(left < right, left, right)


def maximum(left: Value[D], right: Value[D] | Scalar) -> Value[D]:
    """Lane-wise maximum; where a lane is NaN, `right`'s."""
    return select(left > right, left, right)


def index(number: Value[I64] | int) -> Value[I64]:
    """An index as a 64-bit value."""
    return number if isinstance(number, Value) else constant(number, I64)
