"""Keys and values in the cache's formats, in NumPy: what is kept of a head, and where it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jit_kernels.kv_layout import PAGE_SIZE, elements_bytes
from jit_kernels.panels import from_bf16, to_bf16

__all__ = ["Stored", "append", "stored"]

_SMALLEST_MAXIMUM = np.float32(2.0**-125)


class Stored(NamedTuple):
    """Heads [n, KV, D] as kernels read them, codes unscaled; scales [n, KV] of int8."""

    elements: NDArray[np.float32]
    scales: NDArray[np.float32] | None = None

    def each(self, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> Stored:
        """Elements and scales, changed alike."""
        scales = None if self.scales is None else change(self.scales)
        return Stored(change(self.elements), scales)

    def dequantised(self) -> NDArray[np.float64]:
        """What the elements stand for."""
        wide = self.elements.astype(np.float64)
        return wide if self.scales is None else wide * self.scales[..., None].astype(np.float64)


def stored(x: NDArray[np.float32], kv_format: str) -> Stored:
    """What is kept of heads [n, KV, D]: a code is rint(x / s), s = max|x| / 127 of a head."""
    if kv_format == "fp32":
        return Stored(x)
    if kv_format == "bf16":
        return Stored(from_bf16(to_bf16(x)))
    with np.errstate(all="ignore"):
        largest = np.abs(x).max(axis=-1)
        kept = np.isfinite(largest) & (largest >= _SMALLEST_MAXIMUM)
        codes = np.rint(x * (np.float32(127) / largest)[..., None])
        scales = np.where(kept, largest / np.float32(127), np.float32(0))
        scales = np.where(np.isfinite(largest), scales, np.float32(np.nan))
        return Stored(np.where(kept[..., None], codes, np.float32(0)), scales)


def append(
    pages: NDArray[np.uint8], kv_format: str, keys: Stored, values: Stored, slots: NDArray[np.int64]
) -> None:
    """Write tokens to their slots of `pages` [P, KV, block bytes], in place."""
    head_dim = keys.elements.shape[2]
    size = elements_bytes(kv_format, head_dim)
    page, offset = slots // PAGE_SIZE, slots % PAGE_SIZE
    for first, shape, tokens in (
        (0, (head_dim, PAGE_SIZE), keys),
        (size, (PAGE_SIZE, head_dim), values),
    ):
        part = np.ascontiguousarray(pages[..., first : first + size])
        kept = part.view(_dtype(kv_format)).reshape(*pages.shape[:2], *shape)
        where = (page, slice(None), slice(None), offset) if first == 0 else None
        kept[where or (page, slice(None), offset)] = _raw(tokens.elements, kv_format)
        pages[..., first : first + size] = part
    for number, tokens in enumerate((keys, values)):
        if tokens.scales is not None:
            first = 2 * size + number * 4 * PAGE_SIZE
            part = np.ascontiguousarray(pages[..., first : first + 4 * PAGE_SIZE])
            part.view(np.float32)[page, :, offset] = tokens.scales
            pages[..., first : first + 4 * PAGE_SIZE] = part


def _dtype(kv_format: str) -> Any:
    return {"fp32": np.float32, "bf16": np.uint16, "int8": np.int8}[kv_format]


def _raw(elements: NDArray[np.float32], kv_format: str) -> NDArray[Any]:
    return to_bf16(elements) if kv_format == "bf16" else elements.astype(_dtype(kv_format))
