"""Keys and values in the cache's formats, in NumPy: what is kept of a head, and where it lies."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jit_kernels.kv_layout import (
    KEY_GROUP,
    KEY_LOW_BITS,
    LARGEST_KEY_CODE,
    LARGEST_VALUE_CODE,
    PAGE_SIZE,
    key_bytes,
    value_bytes,
)
from jit_kernels.panels import from_bf16, to_bf16

__all__ = ["Stored", "append", "codes_of", "stored_keys", "stored_values"]

_SMALLEST_MAXIMUM = np.float32(2.0**-100)


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


def stored_keys(x: NDArray[np.float32], kv_format: str) -> Stored:
    """What is kept of keys [n, KV, D]."""
    return _stored(x, kv_format, LARGEST_KEY_CODE)


def stored_values(x: NDArray[np.float32], kv_format: str) -> Stored:
    """What is kept of values [n, KV, D]."""
    return _stored(x, kv_format, LARGEST_VALUE_CODE)


def _stored(x: NDArray[np.float32], kv_format: str, largest_code: int) -> Stored:
    if kv_format == "fp32":
        return Stored(x)
    if kv_format == "bf16":
        return Stored(from_bf16(to_bf16(x)))
    return codes_of(x, largest_code)


def codes_of(x: NDArray[np.float32], largest_code: int) -> Stored:
    """Codes rint(x / s), s = max|x| / `largest_code` of the last axis; not finite: 0, s = NaN."""
    with np.errstate(all="ignore"):
        largest = np.abs(x).max(axis=-1)
        kept = np.isfinite(largest) & (largest >= _SMALLEST_MAXIMUM)
        codes = np.rint(x * (np.float32(largest_code) / largest)[..., None])
        scales = np.where(kept, largest / np.float32(largest_code), np.float32(0))
        scales = np.where(np.isfinite(largest), scales, np.float32(np.nan))
        return Stored(np.where(kept[..., None], codes, np.float32(0)), scales)


def append(
    pages: NDArray[np.uint8], kv_format: str, keys: Stored, values: Stored, slots: NDArray[np.int64]
) -> None:
    """Write tokens to their slots of `pages` [P, KV, block bytes], in place."""
    head_dim = keys.elements.shape[2]
    start, size = (of(kv_format, head_dim) for of in (key_bytes, value_bytes))
    page, offset = slots // PAGE_SIZE, slots % PAGE_SIZE
    columns = _columns(keys.elements, kv_format)
    with _part(pages, 0, start, columns.dtype, (columns.shape[2], PAGE_SIZE)) as kept:
        kept[page, :, :, offset] = columns
    rows = _raw(values.elements, kv_format)
    with _part(pages, start, size, rows.dtype, (PAGE_SIZE, head_dim)) as kept:
        kept[page, :, offset] = rows
    for number, tokens in enumerate((keys, values)):
        if tokens.scales is not None:
            first = start + size + number * 4 * PAGE_SIZE
            with _part(pages, first, 4 * PAGE_SIZE, np.dtype("f4"), (PAGE_SIZE,)) as kept:
                kept[page, :, offset] = tokens.scales


@contextmanager
def _part(
    pages: NDArray[np.uint8], first: int, size: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Generator[NDArray[Any]]:
    """Some bytes of every page's heads as an array [P, KV, *shape], whose changes are kept."""
    part = np.ascontiguousarray(pages[..., first : first + size])
    yield part.view(dtype).reshape(*pages.shape[:2], *shape)
    pages[..., first : first + size] = part


def _columns(keys: NDArray[np.float32], kv_format: str) -> NDArray[Any]:
    """What a page's columns hold of keys [n, KV, D]: [n, KV, D], of int8 [n, KV, D / 2 * 3]."""
    if kv_format != "int8":
        return _raw(keys, kv_format)
    groups = keys.astype(np.int32).reshape(*keys.shape[:2], -1, KEY_GROUP)
    shifts = np.arange(KEY_GROUP) * KEY_LOW_BITS
    low = ((groups & (1 << KEY_LOW_BITS) - 1) << shifts).sum(axis=-1, keepdims=True)
    rows = np.concatenate([groups >> KEY_LOW_BITS, low], axis=-1)
    return rows.astype(np.uint8).reshape(*keys.shape[:2], -1)


def _raw(elements: NDArray[np.float32], kv_format: str) -> NDArray[Any]:
    if kv_format == "bf16":
        return to_bf16(elements)
    return elements.astype(np.int8) if kv_format == "int8" else elements
