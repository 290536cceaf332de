"""What prepared activations are, in NumPy: the same bits and the same layout as the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jit_kernels.activation_layout import GEMV_ROWS, INTEGER_FORMS, UNTILED, padded_k

__all__ = ["Prepared", "lay_out", "prepare", "quantize"]

_SMALLEST_MAXIMUM = np.float32(2.0**-100)


class Prepared(NamedTuple):
    """One copy of prepared rows: 32-bit words as laid out, and [R, G, 2] scales (integers only)."""

    words: NDArray[np.int32]
    scales: NDArray[np.float32]


def prepare(x: NDArray[np.float32], form: str, group: int, row_tile: int) -> Prepared:
    """Prepare [R, n] float32 rows in the layout for R rows."""
    padded = np.zeros((len(x), padded_k(x.shape[1])), np.float32)
    padded[:, : x.shape[1]] = x
    if form == "f32":
        return Prepared(lay_out(padded.view(np.int32), row_tile), np.zeros((0, 0, 2), np.float32))
    integers = INTEGER_FORMS[form]
    q, scales = quantize(x, group, form)
    stored = np.zeros(padded.shape, f"int{integers.bits}")
    stored[:, : x.shape[1]] = q
    sixteens = (len(x), padded.shape[1] // len(integers.order), len(integers.order))
    ordered = stored.reshape(sixteens)[:, :, integers.order]
    words = np.ascontiguousarray(ordered.reshape(padded.shape)).view(np.int32)
    return Prepared(lay_out(words, row_tile), scales)


def quantize(
    x: NDArray[np.float32], group: int, form: str = "i16"
) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """q [R, n] in the order of k, and {scale, scale * sum(q)} [R, ceil(n/group), 2]."""
    largest = np.float32(INTEGER_FORMS[form].largest)
    num_rows, n = x.shape
    q = np.zeros((num_rows, n), np.int16)
    scales = np.zeros((num_rows, -(-n // group), 2), np.float32)
    for row in range(num_rows):
        for number, start in enumerate(range(0, n, group)):
            part = x[row, start : start + group]
            # The largest of the absolute bits, so that NaN and infinity are seen.
            maximum = (part.view(np.int32) & 0x7FFFFFFF).max().view(np.float32)
            if not np.isfinite(maximum):
                scales[row, number] = np.nan
            elif maximum >= _SMALLEST_MAXIMUM:
                rounded = np.rint(part * (largest / maximum)).astype(np.int16)
                q[row, start : start + group] = rounded
                scale = maximum / largest
                scales[row, number] = scale, scale * np.float32(rounded.sum(dtype=np.int64))
    return q, scales


def lay_out(words: NDArray[np.int32], row_tile: int) -> NDArray[np.int32]:
    """Words [R, W] as they lie: rows, or strips [ceil(R/row_tile), W, row_tile]."""
    num_rows, width = words.shape
    if num_rows <= GEMV_ROWS or row_tile == UNTILED:
        return words
    strips = np.zeros((-(-num_rows // row_tile) * row_tile, width), np.int32)
    strips[:num_rows] = words
    return np.ascontiguousarray(
        strips.reshape(len(strips) // row_tile, row_tile, width).transpose(0, 2, 1)
    )
