"""The packed layout of a linear weight, panels of 16 columns; knows nothing of models or files.

A weight is W[K, N] (K in features); checkpoints store its transpose, [N, K], and so do the
arguments here. N is padded with zeros to whole panels, K to whole 32-bit words, because a panel is
the same thing in every format: words of one column along K, interleaved over 16 columns.

    f32    float32 [N/16][K]      [16]       1 element a word
    bf16   uint16  [N/16][ceil K/2][16][2]   2
    u8     uint8   [N/16][ceil K/4][16][4]   4
    u4     uint8   [N/16][ceil K/8][16][4]   8, two a byte
    scale, minimum [N/16][ceil K/group][16]  one each per column and group: w = q * scale + minimum

A word of u4 holds, from its lowest four bits, weights 0, 1, 4, 5 and 2, 3, 6, 7 of its eight: its
halves, shifted alike, are then pairs in the order in which those of two words of u8 come.

All functions take blocks of whole rows of [N, K], so a large weight can be packed piece by piece.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from jit_kernels.errors import ShapeError

__all__ = [
    "PANEL_WIDTH",
    "U4_ORDER",
    "from_bf16",
    "group_length",
    "num_groups",
    "num_panels",
    "num_words",
    "pack_bf16",
    "pack_f32",
    "pack_groups",
    "pack_u4",
    "pack_u8",
    "to_bf16",
    "unpack_bf16",
    "unpack_f32",
    "unpack_groups",
    "unpack_u4",
    "unpack_u8",
]

PANEL_WIDTH = 16
_WORD_BYTES = 4
_U4_PER_WORD = 8
U4_ORDER = (0, 1, 4, 5, 2, 3, 6, 7)
"""Which of its eight weights a word of u4 holds, from its lowest four bits."""

Scalar = TypeVar("Scalar", bound=np.generic)


def num_panels(n: int) -> int:
    """Count the panels that hold `n` output columns."""
    return -(-n // PANEL_WIDTH)


def num_words(k: int, element_bits: int) -> int:
    """Count the 32-bit words that hold `k` elements of one column."""
    return -(-k * element_bits // (8 * _WORD_BYTES))


def group_length(k: int, group_size: int | str) -> int:
    """Elements of K that share a scale: `group_size`, or all `k` of them for "row".

    Raises ShapeError.
    """
    if group_size == "row":
        return k
    if isinstance(group_size, str) or group_size < 1:
        raise ShapeError(f'group size {group_size!r} is neither a positive number nor "row"')
    return group_size


def num_groups(k: int, group_size: int | str) -> int:
    """Count the groups of a column of `k` elements; the last one may be shorter."""
    return -(-k // group_length(k, group_size)) if k else 0


def pack_f32(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Pack [N, K] float32 into panels [N/16, K, 16]."""
    return _interleave(_as_words(rows, np.float32)).view(np.float32)


def unpack_f32(panels: NDArray[np.float32], n: int) -> NDArray[np.float32]:
    """Return [n, K] float32 from panels [N/16, K, 16]."""
    return _separate(panels, n, panels.shape[1])


def pack_bf16(rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Pack the bits of [N, K] bfloat16 into panels [N/16, ceil(K/2), 16, 2]."""
    words = _interleave(_as_words(rows, np.uint16))
    return words.view(np.uint16).reshape(*words.shape, 2)


def unpack_bf16(panels: NDArray[np.uint16], n: int, k: int) -> NDArray[np.uint16]:
    """Return the bits of [n, k] bfloat16 from panels [N/16, ceil(K/2), 16, 2]."""
    return _separate(panels, n, k)


def pack_u8(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack [N, K] uint8 into panels [N/16, ceil(K/4), 16, 4]."""
    words = _interleave(_as_words(rows, np.uint8))
    return words.view(np.uint8).reshape(*words.shape, 4)


def unpack_u8(panels: NDArray[np.uint8], n: int, k: int) -> NDArray[np.uint8]:
    """Return [n, k] uint8 from panels [N/16, ceil(K/4), 16, 4]."""
    return _separate(panels, n, k)


def pack_u4(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack [N, K] uint8 below 16 into panels [N/16, ceil(K/8), 16, 4], two elements a byte.

    Raises ShapeError.
    """
    _check_rows(rows, np.uint8)
    n, k = rows.shape
    octets = np.zeros((n, num_words(k, 4), _U4_PER_WORD), np.uint8)
    octets.reshape(n, -1)[:, :k] = rows
    if octets.max(initial=0) > 15:
        raise ShapeError(f"panels of u4 hold 0 to 15, but the array holds {octets.max()}")
    low, high = (octets[:, :, U4_ORDER[start::2]] for start in (0, 1))
    both: NDArray[np.uint8] = np.bitwise_or(low, np.left_shift(high, np.uint8(4)))
    return pack_u8(both.reshape(n, -1))


def unpack_u4(panels: NDArray[np.uint8], n: int, k: int) -> NDArray[np.uint8]:
    """Return [n, k] uint8 below 16 from panels [N/16, ceil(K/8), 16, 4]."""
    pairs = _separate(panels, n, _WORD_BYTES * panels.shape[1]).reshape(n, -1, _WORD_BYTES)
    octets = np.empty((*pairs.shape[:2], _U4_PER_WORD), np.uint8)
    octets[:, :, U4_ORDER[0::2]] = pairs & 15
    octets[:, :, U4_ORDER[1::2]] = pairs >> 4
    return octets.reshape(n, -1)[:, :k]


def pack_groups(rows: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack one value per column and group, [N, G], into [N/16, G, 16]; any dtype."""
    _check_rows(rows, rows.dtype.type)
    return _interleave(rows)


def unpack_groups(panels: NDArray[Scalar], n: int) -> NDArray[Scalar]:
    """Return [n, G] from [N/16, G, 16]."""
    columns = np.ascontiguousarray(panels.transpose(0, 2, 1))
    return columns.reshape(-1, panels.shape[1])[:n]


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round float32 to the bits of bfloat16, to nearest even; any NaN becomes 0x7fc0."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    # Adding 0x7fff plus the lowest kept bit carries exactly when nearest-even rounds up.
    rounded = bits >> 16
    rounded &= 1
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= 16
    narrow = rounded.astype(np.uint16)
    narrow[np.isnan(values)] = 0x7FC0
    return narrow


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen the bits of bfloat16 to float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _check_rows(rows: NDArray[Any], dtype: type[np.generic]) -> None:
    if rows.ndim != 2 or rows.dtype != dtype:
        raise ShapeError(
            f"panels are packed from [N, K] {np.dtype(dtype)}, "
            f"but the array is {list(rows.shape)} {rows.dtype}"
        )


def _as_words(rows: NDArray[Any], dtype: type[np.generic]) -> NDArray[np.uint32]:
    """View [N, K] elements as [N, words], K padded with zeros to whole words."""
    _check_rows(rows, dtype)
    n, k = rows.shape
    per_word = _WORD_BYTES // rows.itemsize
    if k % per_word:
        padded = np.zeros((n, -(-k // per_word) * per_word), rows.dtype)
        padded[:, :k] = rows
        rows = padded
    return np.ascontiguousarray(rows).view(np.uint32)


def _interleave(columns: NDArray[Scalar]) -> NDArray[Scalar]:
    """Turn [N, X] into [N/16, X, 16]; missing columns of the last panel are zero."""
    n, length = columns.shape
    panels = np.empty((num_panels(n), length, PANEL_WIDTH), columns.dtype)
    whole = n // PANEL_WIDTH
    full = columns[: whole * PANEL_WIDTH].reshape(whole, PANEL_WIDTH, length)
    panels[:whole] = full.transpose(0, 2, 1)
    if n % PANEL_WIDTH:
        panels[whole] = 0
        panels[whole, :, : n % PANEL_WIDTH] = columns[whole * PANEL_WIDTH :].T
    return panels


def _separate(panels: NDArray[Scalar], n: int, k: int) -> NDArray[Scalar]:
    """Return [n, k] elements from panels of any format."""
    count, length = panels.shape[:2]
    words = np.ascontiguousarray(panels).view(np.uint32).reshape(count, length, PANEL_WIDTH)
    columns = np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(-1, length)
    return columns.view(panels.dtype)[:n, :k]
