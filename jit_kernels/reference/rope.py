"""Rotary embedding in NumPy, non-interleaved: the first half of a head pairs with the second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import fma

__all__ = ["PAGE_TOKENS", "append", "rotate"]

PAGE_TOKENS = 32


def rotate(
    x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Rotate heads [R, H, D] by angles given as cos, sin [R, D/2]; the kernel's bits."""
    lower, upper = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([fma(lower, cos, -(upper * sin)), fma(upper, cos, lower * sin)], -1)


def append(
    pages: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    slots: NDArray[np.int64],
) -> None:
    """Write k, v [R, KV, D] to their slots of `pages` [P, KV, 2, 32 * D], in place.

    K of a page is [D][32], V is [32][D]; slot = page * 32 + offset.
    """
    num_kv_heads, head_dim = keys.shape[1:]
    page, offset = slots // PAGE_TOKENS, slots % PAGE_TOKENS
    k_pages = pages[:, :, 0].reshape(-1, num_kv_heads, head_dim, PAGE_TOKENS)
    v_pages = pages[:, :, 1].reshape(-1, num_kv_heads, PAGE_TOKENS, head_dim)
    k_pages[page, :, :, offset] = keys
    v_pages[page, :, offset] = values
    pages[:, :, 0] = k_pages.reshape(pages[:, :, 0].shape)
    pages[:, :, 1] = v_pages.reshape(pages[:, :, 1].shape)
