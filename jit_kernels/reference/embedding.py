"""Embedding in NumPy: columns of a packed weight, dequantised; the same bits as the kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.panels import PANEL_WIDTH, from_bf16
from jit_kernels.reference.arithmetic import fma

__all__ = ["embedding_bf16", "embedding_f32", "embedding_u8"]


def embedding_f32(token_ids: NDArray[np.int32], panels: NDArray[np.float32]) -> NDArray[np.float32]:
    """[R, n] from float32 panels [V/16, n, 16]."""
    return panels[token_ids // PANEL_WIDTH, :, token_ids % PANEL_WIDTH]


def embedding_bf16(
    token_ids: NDArray[np.int32], panels: NDArray[np.uint16], n: int
) -> NDArray[np.float32]:
    """[R, n] from bfloat16 panels [V/16, ceil(n/2), 16, 2]."""
    columns = panels[token_ids // PANEL_WIDTH, :, token_ids % PANEL_WIDTH]
    return from_bf16(columns.reshape(len(token_ids), -1)[:, :n])


def embedding_u8(
    token_ids: NDArray[np.int32],
    panels: NDArray[np.uint8],
    scale: NDArray[np.floating],
    minimum: NDArray[np.floating],
    group_size: int,
    n: int,
) -> NDArray[np.float32]:
    """[R, n] from uint8 panels [V/16, ceil(n/4), 16, 4]: q * scale + minimum, rounded once."""
    panel, column = token_ids // PANEL_WIDTH, token_ids % PANEL_WIDTH
    q = panels[panel, :, column].reshape(len(token_ids), -1)[:, :n]
    group = np.arange(n) // group_size
    scales, minimums = (x[panel, :, column].astype(np.float32)[:, group] for x in (scale, minimum))
    return fma(q, scales, minimums)
