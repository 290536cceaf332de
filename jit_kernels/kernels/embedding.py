"""Embedding: y[r] = m · W[:, token_ids[r]], from the panels that the head multiplies by."""

from __future__ import annotations

from typing import NamedTuple

from jit_kernels.dsl import Array, Value, bf16_to_f32, fma, half_to_f32, loop, select
from jit_kernels.kernel import kernel, worker
from jit_kernels.panels import PANEL_WIDTH
from jit_kernels.types import F32, I32, I64, U8, U16

__all__ = ["embedding"]

_BLOCK = 32  # elements gathered at a time; divides every group size but one group per row
_LOG2_PER_WORD = {"f32": 0, "bf16": 1, "u8": 2}


@kernel
def embedding(
    rows: Array[I64],
    token_ids: Array[I32],
    panels: Array[U8],
    scale: Array[U8],
    minimum: Array[U8],
    group_size: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
    n: Value[I64],
    multiplier: Value[F32],
    *,
    weight_format: str,
    scale_format: str,
) -> None:
    """Write each token's dequantised column times `multiplier` to `out` [R, n]; ids must be there.

    Only u8 reads `scale`, `minimum` and `group_size`: a multiple of 32, or n for one group.
    """
    num_blocks = (n + (_BLOCK - 1)) // _BLOCK
    num_groups = (n + group_size - 1) // group_size
    first, last = worker().share(rows[0] * num_blocks)
    for item in loop(first, last):
        row, start = item // num_blocks, item % num_blocks * _BLOCK
        token = token_ids[row].to(I64)
        panel, lane = token // PANEL_WIDTH, token % PANEL_WIDTH
        column = _Column(panels, panel, lane, n, weight_format)
        target, stop = out + row * out_stride, start + _BLOCK
        block = loop(start, select(stop < n, stop, n))
        if weight_format != "u8":
            for k in block:
                target[k] = column.element(k) * multiplier
            continue
        group = (panel * num_groups + start // group_size) * PANEL_WIDTH + lane
        block_scale = _scale_at(scale, group, scale_format)
        block_minimum = _scale_at(minimum, group, scale_format)
        for k in block:
            target[k] = fma(column.element(k), block_scale, block_minimum) * multiplier


class _Column(NamedTuple):
    """One column of a panel: words of one, two or four elements along k."""

    panels: Array[U8]
    panel: Value[I64]
    lane: Value[I64]
    n: Value[I64]
    weight_format: str

    def element(self, k: Value[I64]) -> Value[F32]:
        """Element k as stored, widened to float32."""
        shift = _LOG2_PER_WORD[self.weight_format]
        per_word = 1 << shift
        words = (self.n + (per_word - 1)) >> shift
        word = (self.panel * words + (k >> shift)) * PANEL_WIDTH + self.lane
        position = word * per_word + (k & (per_word - 1))
        if self.weight_format == "f32":
            return self.panels.view(F32)[position]
        if self.weight_format == "bf16":
            return bf16_to_f32(self.panels.view(U16)[position])
        return self.panels[position].to(F32)


def _scale_at(scales: Array[U8], position: Value[I64], scale_format: str) -> Value[F32]:
    if scale_format == "f32":
        return scales.view(F32)[position]
    return half_to_f32(scales.view(U16)[position])
