"""LLVM intrinsics and instructions that LLVM does not pick by itself.

The only file of the language that names them. `NUMPY_BODIES` maps each function of numbers to the
NumPy function that defines it; a test runs both on random operands. What `fma` owes is
`reference.arithmetic.fma`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir

from jit_kernels.dsl.trace import current, llvm_type
from jit_kernels.dsl.values import Value, broadcast, constant, select
from jit_kernels.types import BOOL, F16, F32, I8, I16, I32, I64, U8, U16, U32, DType

__all__ = [
    "NUMPY_BODIES",
    "concatenate",
    "cycle_counter",
    "dot_pairs",
    "dot_pairs_narrow",
    "dot_quads",
    "float_absolute",
    "fma",
    "half_to_f32",
    "masked_load",
    "masked_store",
    "pause",
    "prefetch",
    "round_to_int",
    "sqrt",
]

D = TypeVar("D", bound=DType)
_I32 = ir.IntType(32)
_PMADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd"}
_VPDPWSSD = {
    4: "llvm.x86.avx512.vpdpwssd.128",
    8: "llvm.x86.avx512.vpdpwssd.256",
    16: "llvm.x86.avx512.vpdpwssd.512",
}
_PMADDUBSW = {
    8: "llvm.x86.ssse3.pmadd.ub.sw.128",
    16: "llvm.x86.avx2.pmadd.ub.sw",
    32: "llvm.x86.avx512.pmaddubs.w.512",
}
_VPDPBUSD = {
    4: "llvm.x86.avx512.vpdpbusd.128",
    8: "llvm.x86.avx512.vpdpbusd.256",
    16: "llvm.x86.avx512.vpdpbusd.512",
}


def _suffix(dtype: type[DType], lanes: int) -> str:
    element = f"f{dtype.bits}" if dtype.kind == "float" else f"i{dtype.bits}"
    return element if lanes == 1 else f"v{lanes}{element}"


def _unary(name: str, x: Value[F32]) -> Value[F32]:
    result = current().call(f"llvm.{name}.{_suffix(F32, x.lanes)}", x.ir.type, [x.ir])
    return Value(result, F32, x.lanes)


def sqrt(x: Value[F32]) -> Value[F32]:
    """Square root, correctly rounded."""
    return _unary("sqrt", x)


def float_absolute(x: Value[F32]) -> Value[F32]:
    """|x|."""
    return _unary("fabs", x)


def fma(a: Value[F32], b: Value[F32], c: Value[F32]) -> Value[F32]:
    """a * b + c, rounded once."""
    lanes = max(a.lanes, b.lanes, c.lanes)
    operands = [broadcast(x, lanes).ir for x in (a, b, c)]
    result = current().call(f"llvm.fma.{_suffix(F32, lanes)}", llvm_type(F32, lanes), operands)
    return Value(result, F32, lanes)


ROUNDING_SHIFT = 12582912.0
"""1.5 * 2**23: added to a small number, it leaves rint of it in the lowest bits."""
ROUNDING_SHIFT_BITS = 0x4B400000


def round_to_int(x: Value[F32]) -> Value[I32]:
    """Nearest integer, ties to even; |x| must be below 2**22.

    Adding 1.5 * 2**23 leaves the integer in the low bits of the mantissa: two instructions on
    every machine, where `rint` is a library call without SSE4.1.
    """
    return (x + ROUNDING_SHIFT).bits_as(I32) - ROUNDING_SHIFT_BITS


def half_to_f32(bits: Value[U16]) -> Value[F32]:
    """binary16 bits to float32, exact, subnormals included."""
    isa = current().isa
    if not isa.is_x86 or "f16c" in isa.requires:
        return bits.bits_as(F16).to(F32)
    wide = bits.to(U32)
    sign, magnitude = (wide & 0x8000) << 16, (wide & 0x7FFF) << 13
    # Multiplying by 2**112 moves the exponent's bias from 15 to 127 and normalises subnormals.
    scaled = magnitude.bits_as(F32) * 5.192296858534828e33
    infinite = magnitude >= 0x0F800000
    restored = select(infinite, magnitude | 0x7F800000, scaled.bits_as(U32))
    return (restored | sign).bits_as(F32)


def concatenate(parts: list[Value[Any]]) -> Value[Any]:
    """Vectors of equal width, one after the other."""
    while len(parts) > 1:
        width = parts[0].lanes * 2
        parts = [a.shuffle(range(width), b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def dot_pairs(sums: Value[I32], left: Value[I16], right: Value[I16]) -> Value[I32]:
    """sums[i] + left[2i]*right[2i] + left[2i+1]*right[2i+1], exact in int32."""
    isa = current().isa
    if isa.dot == "widen":
        return _dot_pairs_widened(sums, left, right)
    fused = isa.dot == "vpdpwssd"
    return _by_registers(partial(_dot_native, fused=fused), sums, left, right)


def dot_quads(sums: Value[I32], left: Value[U8], right: Value[I8]) -> Value[I32]:
    """sums[i] + left[4i]*right[4i] + ... + left[4i+3]*right[4i+3], exact in int32.

    left[j]*right[j] + left[j+1]*right[j+1], j even, must fit int16: some machines saturate there.
    """
    isa = current().isa
    if isa.dot == "vpdpwssd" or "avx2" in isa.requires:
        fused = isa.dot == "vpdpwssd"
        return _by_registers(partial(_quads_native, fused=fused), sums, left, right)
    lanes, signed = left.bits_as(U16), right.bits_as(I16)
    even = dot_pairs(sums, (lanes & 0xFF).bits_as(I16), (signed << 8) >> 8)
    return dot_pairs(even, (lanes >> 8).bits_as(I16), signed >> 8)


def dot_pairs_narrow(sums: Value[I16], left: Value[U8], right: Value[I8]) -> Value[I16]:
    """sums[i] + left[2i]*right[2i] + left[2i+1]*right[2i+1]; all of it must fit int16."""
    if "avx2" in current().isa.requires:
        return _by_registers(_pairs_native, sums, left, right)
    lanes, signed = left.bits_as(U16), right.bits_as(I16)
    even = (lanes & 0xFF).bits_as(I16) * ((signed << 8) >> 8)
    return sums + even + (lanes >> 8).bits_as(I16) * (signed >> 8)


def _by_registers(
    dot: Callable[..., Value[D]], sums: Value[D], left: Value[Any], right: Value[Any]
) -> Value[D]:
    """`dot` on as many lanes at a time as a register holds."""
    in_register = 8 * current().isa.vector_bytes // sums.dtype.bits
    width, each = min(sums.lanes, in_register), left.lanes // sums.lanes
    pieces: list[Value[Any]] = []
    for begin in range(0, sums.lanes, width):
        part = range(begin, begin + width)
        elements = range(each * begin, each * (begin + width))
        pieces.append(dot(sums.shuffle(part), left.shuffle(elements), right.shuffle(elements)))
    return concatenate(pieces)


def _dot_native(sums: Value[I32], left: Value[I16], right: Value[I16], fused: bool) -> Value[I32]:
    trace, vector = current(), llvm_type(I32, sums.lanes)
    if fused:
        operands = [sums.ir, left.bits_as(I32).ir, right.bits_as(I32).ir]
        return Value(trace.call(_VPDPWSSD[sums.lanes], vector, operands), I32, sums.lanes)
    product = trace.call(_PMADDWD[sums.lanes], vector, [left.ir, right.ir])
    return sums + Value(product, I32, sums.lanes)


def _quads_native(sums: Value[I32], left: Value[U8], right: Value[I8], fused: bool) -> Value[I32]:
    trace, vector = current(), llvm_type(I32, sums.lanes)
    if fused:
        operands = [sums.ir, left.bits_as(I32).ir, right.bits_as(I32).ir]
        return Value(trace.call(_VPDPBUSD[sums.lanes], vector, operands), I32, sums.lanes)
    halves = llvm_type(I16, 2 * sums.lanes)
    pairs = trace.call(_PMADDUBSW[2 * sums.lanes], halves, [left.ir, right.ir])
    ones = constant(1, I16, 2 * sums.lanes)
    product = trace.call(_PMADDWD[sums.lanes], vector, [pairs, ones.ir])
    return sums + Value(product, I32, sums.lanes)


def _pairs_native(sums: Value[I16], left: Value[U8], right: Value[I8]) -> Value[I16]:
    vector = llvm_type(I16, sums.lanes)
    pairs = current().call(_PMADDUBSW[sums.lanes], vector, [left.ir, right.ir])
    return sums + Value(pairs, I16, sums.lanes)


def _dot_pairs_widened(sums: Value[I32], left: Value[I16], right: Value[I16]) -> Value[I32]:
    even, odd = range(0, left.lanes, 2), range(1, left.lanes, 2)
    products = left.shuffle(even).to(I32) * right.shuffle(even).to(I32)
    return sums + products + left.shuffle(odd).to(I32) * right.shuffle(odd).to(I32)


def _numpy_dot_pairs(sums: Any, left: Any, right: Any) -> Any:
    products = left.astype(np.int32) * right.astype(np.int32)
    return sums + products[0::2] + products[1::2]


def _numpy_dot_pairs_narrow(sums: Any, left: Any, right: Any) -> Any:
    products = left.astype(np.int16) * right.astype(np.int16)
    return sums + products[0::2] + products[1::2]


def _numpy_dot_quads(sums: Any, left: Any, right: Any) -> Any:
    products = left.astype(np.int32) * right.astype(np.int32)
    return sums + products.reshape(-1, 4).sum(axis=1, dtype=np.int32)


def _numpy_round_to_int(x: Any) -> Any:
    return np.rint(x).astype(np.int32)


def _numpy_half_to_f32(bits: Any) -> Any:
    return bits.view(np.float16).astype(np.float32)


NUMPY_BODIES: dict[Callable[..., Any], Callable[..., Any]] = {
    sqrt: np.sqrt,
    float_absolute: np.abs,
    round_to_int: _numpy_round_to_int,
    half_to_f32: _numpy_half_to_f32,
    dot_pairs: _numpy_dot_pairs,
    dot_pairs_narrow: _numpy_dot_pairs_narrow,
    dot_quads: _numpy_dot_quads,
}


def masked_load(where: Any, dtype: type[D], mask: Value[BOOL], align: int) -> Value[D]:
    """Elements at the pointer `where` in lanes that `mask` holds for, 0 in the others."""
    vector = llvm_type(dtype, mask.lanes)
    arguments = [where, ir.Constant(_I32, align), mask.ir, ir.Constant(vector, None)]
    name = f"llvm.masked.load.{_suffix(dtype, mask.lanes)}.p0"
    return Value(current().call(name, vector, arguments), dtype, mask.lanes)


def masked_store(value: Value[Any], where: Any, mask: Value[BOOL], align: int) -> None:
    """Store at the pointer `where` the lanes that `mask` holds for."""
    arguments = [value.ir, where, ir.Constant(_I32, align), mask.ir]
    name = f"llvm.masked.store.{_suffix(value.dtype, value.lanes)}.p0"
    current().call(name, ir.VoidType(), arguments)


def prefetch(where: Any, locality: int) -> None:
    """Ask for the cache line at the pointer `where`, to be read; 3 is the first-level cache."""
    arguments = [where, *(ir.Constant(_I32, k) for k in (0, locality, 1))]
    current().call("llvm.prefetch.p0", ir.VoidType(), arguments)


def pause() -> None:
    """Tell the processor that this is a spin loop."""
    if current().isa.is_x86:
        current().call("llvm.x86.sse2.pause", ir.VoidType(), [])
    else:
        current().call("llvm.aarch64.hint", ir.VoidType(), [ir.Constant(_I32, 1)])


def cycle_counter() -> Value[I64]:
    """The processor's time-stamp counter."""
    trace, word = current(), ir.IntType(64)
    if trace.isa.is_x86:
        return Value(trace.call("llvm.readcyclecounter", word, []), I64)
    # The same intrinsic is 0 here: aarch64 lets user code read its timer only.
    function = trace.declare("llvm.read_volatile_register.i64", word, [ir.MetaDataType()])
    count = trace.builder.call(function, [trace.module.add_metadata(["cntvct_el0"])])
    return Value(count, I64)
