"""How prepared activations lie in memory: the contract between `prepare` and `linear` kernels.

    rows <= REDUNDANT_ROWS   every worker has its own copy, rows one after the other
    rows <= GEMV_ROWS        one shared copy, rows one after the other
    more rows                strips of `row_tile` rows: [strip][word][row_tile] 32-bit words;
                             missing rows of the last strip are 0
    a row_tile of UNTILED    one shared copy, rows one after the other, whatever their number

A word holds what one step of a product reads, in one of four forms:

    f32    a float32
    i16    two int16, |q| <= 32767; within each quad of k in the order 0, 2, 1, 3, in which the even
           and odd bytes of a word of u8 weights come, and the nibbles of one of u4
    i7     four int8, |q| <= 63, for u8 weights
    i8     four int8, |q| <= 127, for u4 weights; within each octet of k in the order 0, 4, 2, 6,
           1, 5, 3, 7, in which the lower and the upper nibbles of a word come

K is padded with zeros to a multiple of 16. Knows nothing of how either side computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "GEMV_ROWS",
    "INTEGER_FORMS",
    "K_ALIGNMENT",
    "MAX_UNIT_COLUMNS",
    "REDUNDANT_ROWS",
    "UNTILED",
    "IntegerForm",
    "padded_k",
    "word_elements",
]


@dataclass(frozen=True, slots=True)
class IntegerForm:
    """Activations as integers of `bits` in memory, at most `largest`; `order` is within 16 of k."""

    bits: int
    largest: int
    order: tuple[int, ...]


def _in_order(*positions: int) -> tuple[int, ...]:
    """The order of 16 elements, given that of the first few."""
    return tuple(k + p for k in range(0, 16, len(positions)) for p in positions)


INTEGER_FORMS: Final = {
    "i16": IntegerForm(16, 32767, _in_order(0, 2, 1, 3)),
    "i7": IntegerForm(8, 63, _in_order(0)),
    "i8": IntegerForm(8, 127, _in_order(0, 4, 2, 6, 1, 5, 3, 7)),
}
"""Forms of integer activations, by name."""

REDUNDANT_ROWS = 4
GEMV_ROWS = 64
K_ALIGNMENT = 16
UNTILED = 0
MAX_UNIT_COLUMNS = 64
"""Widest group of integers that a product of gates and ups prepares itself for the next product."""


def word_elements(form: str) -> int:
    """Elements of K in one word of a prepared row."""
    return 32 // INTEGER_FORMS[form].bits if form in INTEGER_FORMS else 1


def padded_k(k: int) -> int:
    """Elements of a prepared row: `k` rounded up to `K_ALIGNMENT`."""
    return -(-k // K_ALIGNMENT) * K_ALIGNMENT
