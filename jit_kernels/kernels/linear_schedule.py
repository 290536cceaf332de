"""How a matrix product walks its weights: choices that change its time and never its bits.

What is computed, and in which order, is `linear_blocks`'s and the formats'; a schedule says how
many rows share a decoding, how far ahead memory is asked, and how panels are dealt to workers. It
is written as one word, a kernel's constant, so that a choice can be stored and named.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from jit_kernels.activation_layout import REDUNDANT_ROWS
from jit_kernels.errors import TraceError
from jit_kernels.isa import Isa
from jit_kernels.kernels.linear_tiles import PREFETCH_BYTES, row_tile, rows_per_pass

__all__ = ["DEFAULT_SCHEDULE", "Schedule", "Trial", "row_tiles", "trials"]

DEFAULT_SCHEDULE = "default"
"""The word for what was measured best on the machines this package was made on."""

_CHOICES: dict[str, tuple[int, ...]] = {
    "few_ahead": (0, 1024, 4096, 7168),
    "unroll": (4, 8, 16),
    "shared_from": (32, 256),
    "pass_rows": (4, 8),
    "many_ahead": (0, 2048, 6144, 12288),
    "row_block": (128, 256),
    "block_steps": (128, 256),
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way to walk; each field is one of the few values that the kernels are written for.

    few_ahead: bytes asked ahead where two to four rows wait for memory; 0 asks for nothing.
    unroll: words of a group that the forms for up to four rows unroll at most.  shared_from:
    panels for each worker from which the last of them are claimed in short runs there.
    pass_rows: rows that share a decoding.  many_ahead: as few_ahead, for more rows.  row_block:
    rows of the blocked form that stay in the second-level cache.  block_steps: of K that it
    unpacks at a time.
    Raises `TraceError` for any other value.
    """

    few_ahead: int
    unroll: int
    shared_from: int
    pass_rows: int
    many_ahead: int
    row_block: int
    block_steps: int

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise TraceError(f"a schedule's {name} is one of {allowed}, not {value!r:.80}")

    @staticmethod
    def default(isa: Isa) -> Schedule:
        """The schedule for `isa` where nothing was measured."""
        few, many = (4096, 2048) if isa.num_registers == 16 else (7168, PREFETCH_BYTES)
        return Schedule(few, 16, 256, rows_per_pass(isa), many, 256, 256)

    @staticmethod
    def of(isa: Isa, word: str) -> Schedule:
        """The schedule that `word` spells; raises `TraceError` for a word that spells none."""
        if word == DEFAULT_SCHEDULE:
            return Schedule.default(isa)
        values = word.split(".")
        if len(values) != len(_CHOICES) or not all(value.isdecimal() for value in values):
            raise TraceError(
                f"{word!r:.80} spells no schedule: seven whole numbers with points between, "
                f"{'.'.join(_CHOICES)}, or {DEFAULT_SCHEDULE!r}"
            )
        return Schedule(*map(int, values))

    @property
    def word(self) -> str:
        """The schedule as a kernel's constant; `of` reads it back."""
        return ".".join(str(getattr(self, field.name)) for field in fields(self))

    def words_unrolled(self, isa: Isa, rows: int, group_words: int) -> int:
        """Words of a whole group that the GEMV forms unroll for `rows` rows."""
        if rows > 1 and isa.num_registers == 16:
            return 1  # more would not stay in registers
        return min(group_words, self.unroll if rows <= REDUNDANT_ROWS else 2)


class Trial(NamedTuple):
    """What is measured together: a schedule, and the rows of a strip of the blocked form."""

    schedule: Schedule
    row_tile: int


def row_tiles(isa: Isa) -> tuple[int, ...]:
    """Rows of a strip that the blocked form may take on `isa`, the default first."""
    default = row_tile(isa)
    return (default, *[rows for rows in (6, 4, 2) if rows < default][:2])


def trials(isa: Isa) -> tuple[Trial, ...]:
    """What to measure, the default first: together they hold what may be chosen.

    Forms for few, several and many rows read different fields, so each trial tries one value for
    each of them.
    """
    default, tiles = Schedule.default(isa), row_tiles(isa)
    tile, other_rows = tiles[0], 4 if default.pass_rows == 8 else 8
    return (
        Trial(default, tile),
        Trial(replace(default, few_ahead=1024, many_ahead=12288, block_steps=128), tile),
        Trial(replace(default, few_ahead=0, row_block=128), tile),
        Trial(replace(default, unroll=8, pass_rows=other_rows), tiles[1]),
        Trial(replace(default, unroll=4, many_ahead=0, row_block=128, block_steps=128), tile),
        Trial(replace(default, shared_from=32), tiles[-1]),
    )
