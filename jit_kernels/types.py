"""Element types of kernel operands: what an `Array` holds and a `Value` is; knows nothing of LLVM.

The types are classes, never instantiated, so that they serve as type arguments: `Array[F32]`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

__all__ = [
    "BOOL",
    "F16",
    "F32",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "U16",
    "U32",
    "DType",
]


class DType:
    """Base of the element types: `label`, width in `bits`, and how its bits are read."""

    label: ClassVar[str]
    bits: ClassVar[int]
    kind: ClassVar[Literal["float", "signed", "unsigned"]]


class F32(DType):
    """IEEE 754 binary32."""

    label, bits, kind = "f32", 32, "float"


class F16(DType):
    """IEEE 754 binary16, a storage type: `half_to_f32` widens its bits, and F32 computes."""

    label, bits, kind = "f16", 16, "float"


class I8(DType):
    """Signed 8-bit integer."""

    label, bits, kind = "i8", 8, "signed"


class U8(DType):
    """Unsigned 8-bit integer."""

    label, bits, kind = "u8", 8, "unsigned"


class I16(DType):
    """Signed 16-bit integer."""

    label, bits, kind = "i16", 16, "signed"


class U16(DType):
    """Unsigned 16-bit integer; bfloat16 is stored as this."""

    label, bits, kind = "u16", 16, "unsigned"


class I32(DType):
    """Signed 32-bit integer."""

    label, bits, kind = "i32", 32, "signed"


class U32(DType):
    """Unsigned 32-bit integer."""

    label, bits, kind = "u32", 32, "unsigned"


class I64(DType):
    """Signed 64-bit integer: counts, strides, indices."""

    label, bits, kind = "i64", 64, "signed"


class BOOL(DType):
    """Result of a comparison."""

    label, bits, kind = "i1", 1, "unsigned"
