"""Turns blocks of a weight's rows into panels in the format asked for; knows nothing of files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import cache_root
from dashinfer_lab.errors import ConversionError
from dashinfer_lab.graph import WeightDeclaration
from dashinfer_lab.quantize import GROUPED_BITS, ScaleType, quantize_panels
from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import detect
from jit_kernels.panels import (
    PANEL_WIDTH,
    from_bf16,
    pack_bf16,
    pack_f32,
    to_bf16,
)

__all__ = ["PackedBlock", "as_float32", "pack_block", "require_finite"]

# Long enough that NumPy's calls cost little beside their work, short enough for a cache.
_PART_BYTES = 1024 << 10

_SHORTEST = 1e-12  # that of torch's normalize
_MAGNITUDE = np.uint16(0x7FFF)
_BF16_INFINITY = 0x7F80


class PackedBlock(NamedTuple):
    """Panels of some rows; scale and minimum are None for formats without groups."""

    panels: NDArray[Any]
    scale: NDArray[Any] | None = None
    minimum: NDArray[Any] | None = None


def pack_block(
    weight: WeightDeclaration,
    read: Callable[[slice], NDArray[Any]],
    rows: slice,
    scale_type: ScaleType,
    workers: Executor,
) -> list[PackedBlock] | None:
    """Read and pack `rows`, a multiple of 16 of them or the last of the weight, part by part.

    Returns None where float16 scales are too coarse. Raises ConversionError naming the tensor and
    the index of the first weight that is not finite.
    """
    step = max(1, _PART_BYTES // (4 * weight.shape[1]) // PANEL_WIDTH) * PANEL_WIDTH

    def pack(start: int) -> PackedBlock | None:
        values = read(slice(start, min(start + step, rows.stop)))
        return _pack_part(weight, values, start, scale_type)

    parts = list(workers.map(pack, range(rows.start, rows.stop, step)))
    packed = [part for part in parts if part is not None]
    return packed if len(packed) == len(parts) else None


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Widen float16 or bfloat16 to float32, exactly; float32 is returned as it is."""
    if values.dtype.name == "bfloat16":
        return from_bf16(np.ascontiguousarray(values).view(np.uint16))
    return values.astype(np.float32, copy=False)


def require_finite(name: str, values: NDArray[np.float32], first_row: int = 0) -> None:
    """Raise ConversionError naming the first index of `values` that is NaN or infinite."""
    if np.isfinite(values).all():
        return
    index = [int(i) for i in np.argwhere(~np.isfinite(values))[0]]
    value = values[tuple(index)]
    index[0] += first_row
    raise ConversionError(
        f"tensor {name!r} holds {value} at {index}; the checkpoint is damaged, fetch it again"
    )


def _pack_part(
    weight: WeightDeclaration, rows: NDArray[Any], first_row: int, scale_type: ScaleType
) -> PackedBlock | None:
    if weight.unit_rows:
        rows = _of_unit_length(as_float32(rows))
    if weight.format in GROUPED_BITS:
        return _quantize_part(weight, rows, first_row, scale_type)
    values = as_float32(rows)
    require_finite(weight.name, values, first_row)
    if weight.format == "f32":
        return PackedBlock(pack_f32(values))
    bits = to_bf16(values)
    if np.max(bits & _MAGNITUDE, initial=0) >= _BF16_INFINITY:  # beyond bfloat16's largest
        require_finite(weight.name, from_bf16(bits), first_row)
    return PackedBlock(pack_bf16(bits))


def _of_unit_length(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows divided by their lengths, taken in float64; rows of zeros stay."""
    wide = rows.astype(np.float64)
    length = np.sqrt(np.sum(wide * wide, axis=1, keepdims=True))
    return (wide / np.maximum(length, _SHORTEST)).astype(np.float32)


def _quantize_part(
    weight: WeightDeclaration, rows: NDArray[Any], first_row: int, scale_type: ScaleType
) -> PackedBlock | None:
    bits, compiler = GROUPED_BITS[weight.format], compiler_for(detect(), cache_root() / "objects")
    try:
        quantized = quantize_panels(rows, weight.group_size, scale_type, bits, compiler)
    except ConversionError as error:
        require_finite(weight.name, as_float32(rows), first_row)
        raise ConversionError(f"tensor {weight.name!r}: {error}") from error
    if quantized is None:
        return None
    return PackedBlock(quantized.panels, quantized.scale, quantized.minimum)
