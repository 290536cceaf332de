"""Shapes of a weight as it is stored: panels and, by groups, scale and minimum; holds no data."""

from __future__ import annotations

from typing import Final

from dashinfer_lab.quantize.scheme import GroupSize, WeightFormat
from jit_kernels.panels import PANEL_WIDTH, group_length, num_groups, num_panels, num_words

__all__ = ["ELEMENT_BYTES", "group_length", "group_shape", "panel_shape", "whole_panels"]

ELEMENT_BYTES: Final[dict[WeightFormat, int]] = {"f32": 4, "bf16": 2, "u8": 1, "u4": 1}
"""Bytes of an element of the panels, which for u4 holds two weights."""

_WEIGHT_BITS: Final[dict[WeightFormat, int]] = {"f32": 32, "bf16": 16, "u8": 8, "u4": 4}


def panel_shape(n: int, k: int, weight_format: WeightFormat) -> tuple[int, ...]:
    """Return the shape of the panels that hold a weight [n, k]."""
    element_bytes = ELEMENT_BYTES[weight_format]
    words = (num_panels(n), num_words(k, _WEIGHT_BITS[weight_format]), PANEL_WIDTH)
    return words if element_bytes == 4 else (*words, 4 // element_bytes)


def whole_panels(n: int) -> int:
    """Return the columns of the panels that hold `n` columns."""
    return num_panels(n) * PANEL_WIDTH


def group_shape(n: int, k: int, group_size: GroupSize) -> tuple[int, ...]:
    """Return the shape of the scale, and of the minimum, of a weight [n, k] in groups."""
    return (num_panels(n), num_groups(k, group_size), PANEL_WIDTH)
