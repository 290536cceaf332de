"""Rows of a converted weight, out of the panel that kernels read; knows no layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.quantize import QuantizedRows, dequantize
from jit_kernels.panels import (
    PANEL_WIDTH,
    from_bf16,
    unpack_bf16,
    unpack_f32,
    unpack_groups,
    unpack_u4,
    unpack_u8,
)

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["panel_rows"]


def panel_rows(artifact: Artifact, name: str, position: int, k: int) -> NDArray[np.float32]:
    """Return the 16 rows of panel `position` of a weight, float32 [16, k], as kernels see them."""
    only = slice(position, position + 1)
    panel: Any = artifact.tensor(name)[only]
    if artifact.tensors[name].dtype == "F32":
        return unpack_f32(panel, PANEL_WIDTH)
    if artifact.tensors[name].dtype == "BF16":
        return from_bf16(unpack_bf16(panel, PANEL_WIDTH, k))
    scale, minimum = (
        unpack_groups(artifact.tensor(f"{name}.{part}")[only], PANEL_WIDTH)
        for part in ("scale", "minimum")
    )
    four_bits = artifact.metadata["scheme"].startswith(("a16w4", "a8w4"))
    codes = (unpack_u4 if four_bits else unpack_u8)(panel, PANEL_WIDTH, k)
    group = artifact.metadata["group_size"]
    size: Any = int(group) if group.isdigit() else "row"
    return dequantize(QuantizedRows(codes, scale, minimum), size)
