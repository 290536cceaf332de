"""A draw's request in memory: eighteen 64-bit words, written by `DrawWords`, read by `DrawRequest`.

Lists of edits stay where they are: a request holds their addresses. Knows no logits.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from jit_kernels.dsl import Array, Value, pointer_at
from jit_kernels.types import F32, I32, I64, U32

__all__ = ["POSITION_WORD", "REQUEST_WORDS", "DrawRequest", "DrawWords"]

_WORDS: Final = struct.Struct("<fIqfIQqqfI9QfI2f")
REQUEST_WORDS: Final = _WORDS.size // 8
POSITION_WORD: Final = 5
_MASK: Final = 2**64 - 1


class DrawWords(NamedTuple):
    """What one row is drawn with; `write` puts it where the kernel reads it.

    top_k 0, top_p 1, min_p 0, repetition 1, presence 0, frequency 0 are off.  num_ids: ids that
    may be drawn, from 0 on; 0 is all.  report: 0 for nothing, else 1 + the number of likeliest ids
    wanted.  target: id that is reported, None for the drawn one.  allowed, biases, penalised:
    (number, address) of int32 ids, of (id, float32 bits) and of (id, count in the output); they
    must outlive the draw, their ids lie below `num_ids`, and each is penalised at most once.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    choice: int = 0
    position: int = 0
    min_p: float = 0.0
    num_ids: int = 0
    report: int = 0
    target: int | None = None
    allowed: tuple[int, int] = (0, 0)
    biases: tuple[int, int] = (0, 0)
    penalised: tuple[int, int] = (0, 0)
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0

    def write(self, buffer: memoryview, row: int) -> None:
        """Fill a row of `buffer`, writable bytes [rows][REQUEST_WORDS][8]."""
        _WORDS.pack_into(
            buffer,
            row * _WORDS.size,
            self.temperature, 0, self.top_k, self.top_p, 0, self.seed & _MASK, self.choice,
            self.position, self.min_p, 0, self.num_ids, self.report,
            0 if self.target is None else self.target + 1,
            *self.allowed, *self.biases, *self.penalised,
            self.repetition, 0, self.presence, self.frequency,
        )  # fmt: skip


class DrawRequest:
    """The words of one request, in a kernel."""

    def __init__(self, words: Array[I64]) -> None:
        self._words = words
        self.temperature = self._float(0)
        self.top_k = words[1]
        self.top_p = self._float(2)
        self.seed, self.choice, self.position = words[3], words[4], words[POSITION_WORD]
        self.min_p = self._float(6)
        self.num_ids, self.report, self.target_plus_1 = words[7], words[8], words[9]
        self.num_allowed, self.num_biases, self.num_penalised = words[10], words[12], words[14]
        self.repetition = self._float(16)
        self.presence, self.frequency = self._float(17), self._float(17, upper=True)

    @property
    def num_edits(self) -> Value[I64]:
        """Entries of all lists."""
        return self.num_allowed + self.num_biases + self.num_penalised

    @property
    def allowed(self) -> Array[I32]:
        """Ids that may be drawn."""
        return pointer_at(self._words, 11, I32)

    @property
    def biases(self) -> Array[I32]:
        """Pairs of an id and the bits of what is added to its logit."""
        return pointer_at(self._words, 13, I32)

    @property
    def penalised(self) -> Array[I32]:
        """Pairs of an id and its count in the output."""
        return pointer_at(self._words, 15, I32)

    def _float(self, word: int, *, upper: bool = False) -> Value[F32]:
        bits = self._words[word] >> 32 if upper else self._words[word]
        return bits.to(U32).bits_as(F32)
