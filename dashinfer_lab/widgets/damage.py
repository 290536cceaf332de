"""What quantising does to rows of weights; pure arithmetic, knows no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.quantize import GroupSize, dequantize, group_length, quantize_rows

__all__ = ["BITS", "Bits", "Damage", "damage"]

Bits = Literal[8, 4]
BITS: Final[tuple[Bits, ...]] = get_args(Bits)
"""Of a weight's code."""
_SCALE_BITS: Final = 32  # a scale and a minimum of 16 bits each


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """A sample quantised: relative error, the steps of its groups, and what is left over.

    bits_per_weight: codes, and scale and minimum of a group shared out.
    """

    relative_error: float
    median_step: float
    bits_per_weight: float
    residual: NDArray[np.float32]


def damage(rows: NDArray[np.float32], group_size: GroupSize, bits: Bits = 8) -> Damage:
    """Quantise float32 [N, K] in groups and say what it cost."""
    quantized = quantize_rows(rows, group_size, np.float16, bits)
    if quantized is None:
        quantized = quantize_rows(rows, group_size, np.float32, bits)
    assert quantized is not None  # float32 is never too coarse
    residual = rows - dequantize(quantized, group_size)
    size = float(np.linalg.norm(rows))
    length = group_length(rows.shape[1], group_size)
    return Damage(
        float(np.linalg.norm(residual)) / size if size else 0.0,
        float(np.median(quantized.scale.astype(np.float32))),
        bits + _SCALE_BITS * quantized.scale.itemsize / 2 / length,
        residual,
    )
