"""InstantQuant by compiled kernels: rows of a checkpoint, in the type they have, to panels.

The bits are those of `quantize_rows` and `pack_u8` or `pack_u4`, at the speed of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.quantize.instant import ScaleType, stored_grid
from dashinfer_lab.quantize.scheme import GroupSize
from jit_kernels.compiler.jit import Compiler
from jit_kernels.kernels.quantize import group_codes, group_extremes
from jit_kernels.panels import (
    PANEL_WIDTH,
    group_length,
    num_groups,
    num_panels,
    num_words,
    pack_groups,
)

__all__ = ["QuantizedPanels", "quantize_panels"]

_SOURCES: Final = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class QuantizedPanels:
    """Panels of codes, and scale and minimum of their groups, as `jit_kernels.panels` says."""

    panels: NDArray[np.uint8]
    scale: NDArray[Any]
    minimum: NDArray[Any]


def quantize_panels(
    rows: NDArray[Any],
    group_size: GroupSize | int,
    scale_type: ScaleType,
    bits: int,
    compiler: Compiler,
) -> QuantizedPanels | None:
    """Quantise [N, K] rows of float32, bfloat16 or float16 to 8 or 4 `bits`.

    Returns None and raises as `quantize_rows` does. Other threads may run meanwhile.
    """
    n, k = rows.shape
    length = group_length(k, group_size)
    weights, source = np.ascontiguousarray(rows), _SOURCES[rows.dtype.name]
    low, high = (np.empty((n, num_groups(k, length)), np.float32) for _ in range(2))
    extremes = group_extremes.specialise(source=source).compile(compiler)
    extremes(n, weights, k, length, low, high)
    grid = stored_grid(low, high, scale_type, bits)
    if grid is None:
        return None
    scale, minimum = (np.ascontiguousarray(part, np.float32) for part in grid)
    panels = np.empty((num_panels(n), num_words(k, bits), PANEL_WIDTH, 4), np.uint8)
    codes = group_codes.specialise(source=source, bits=bits).compile(compiler)
    codes(n, weights, k, length, scale, minimum, panels)
    return QuantizedPanels(panels, pack_groups(grid[0]), pack_groups(grid[1]))
