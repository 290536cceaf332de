"""The arrays a step reads and writes, at addresses that never change, and how chunks fill them.

Knows the layout kernels expect; knows no kernel, thread or request state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ntk_stage
from dashinfer_lab.engine.batch import Chunk
from dashinfer_lab.engine.draws import DrawArrays
from jit_kernels.kernels.advance import STOP_IDS
from jit_kernels.kernels.attention_items import ITEM_WORDS
from jit_kernels.kernels.attention_merge import SPLIT_WORDS
from jit_kernels.runtime.buffers import aligned

__all__ = ["MAX_WALKS", "AttentionShape", "RotationTables", "StepInputs"]

_MAX_PARTIALS = 1024
_WHOLE = -1
_ROWS_OF_READING = 4
MAX_WALKS = 64
"""Most tokens a request may draw in one call."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What attention's work list depends on; sizes in tokens, `partial_floats` in float32.

    `query_tile`: most rows of one item.  `partial_floats`: one segment's state, all heads.
    """

    page_size: int
    segment_size: int
    query_tile: int
    num_kv_heads: int
    partial_floats: int
    num_threads: int


@dataclass(frozen=True, slots=True)
class RotationTables:
    """Where the rotary table of each stage begins: one after another, a row a position."""

    context_length: int
    ntk_length: int | None

    def first_row(self, prompt_length: int) -> int:
        """Row of position 0 for the tokens of a request with so long a prompt."""
        return self.context_length * ntk_stage(prompt_length, self.ntk_length)


class StepInputs:
    """Token ids, positions, cache slots, attention items and sampling of one step."""

    def __init__(
        self,
        *,
        max_tokens: int,
        max_logit_rows: int,
        max_pages: int,
        logits_stride: int,
        vocab_size: int,
        attention: AttentionShape,
        rotation: RotationTables,
    ) -> None:
        self._attention = attention
        self._rotation = rotation
        self.num_tokens = aligned(1, np.int64)
        self.num_logit_rows = aligned(1, np.int64)
        self.token_ids = aligned(max_tokens, np.int32)
        self.positions = aligned(max_tokens, np.int32)
        self.rotary_rows = aligned(max_tokens, np.int32)
        self.slots = aligned(max_tokens, np.int64)
        self.logit_rows = aligned(max_logit_rows, np.int32)
        self.num_items = aligned(1, np.int64)
        self.items = aligned((max_tokens + _MAX_PARTIALS, ITEM_WORDS), np.int64)
        self.num_splits = aligned(1, np.int64)
        self.splits = aligned((max_tokens, SPLIT_WORDS), np.int64)
        self.partials = aligned((_MAX_PARTIALS, attention.partial_floats), np.float32)
        self.page_tables = aligned(max_tokens * max_pages, np.int32)
        self.walks = aligned(3, np.int64)
        self.stop_ids = aligned((max_logit_rows, STOP_IDS), np.int32)
        self.tokens_of_walks = aligned((MAX_WALKS, max_logit_rows), np.int32)
        self.first_pages = aligned(max_tokens, np.int64)
        self.draws = DrawArrays(max_logit_rows, vocab_size)
        self.logits = aligned((max_logit_rows, logits_stride), np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by the name that plans use."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return own | self.draws.arrays()

    def fill(self, chunks: Sequence[Chunk]) -> list[slice]:
        """Lay out a step; returns the rows of logits of each chunk."""
        row = logit_row = table = 0
        rows: list[slice] = []
        lengths = [len(chunk.token_ids) for chunk in chunks]
        first_rows: list[int] = []
        tables: list[int] = []
        for chunk, length in zip(chunks, lengths, strict=True):
            self._fill_tokens(chunk, row, length, table)
            wanted = {"none": 0, "last": 1, "all": length}[chunk.logit_rows]
            rows.append(slice(logit_row, logit_row + wanted))
            end = row + length
            self.logit_rows[logit_row : logit_row + wanted] = range(end - wanted, end)
            self.draws.fill(rows[-1], chunk)
            first_rows.append(row)
            tables.append(table)
            row, logit_row, table = end, logit_row + wanted, table + len(chunk.page_table)
        self.num_tokens[0], self.num_logit_rows[0] = row, logit_row
        self.walks[:2] = 1, 0
        self._fill_attention(chunks, lengths, first_rows, tables)
        return rows

    def repeat(self, chunks: Sequence[Chunk], most: int) -> None:
        """Let a filled step of decodes be walked up to `most` times, each drawing a token a row.

        Fewer where the attention of a row would reach into a segment it has no item for.
        """
        size = self._attention.segment_size
        rows = self.splits[: self.num_splits[0], 0]
        if len(rows):
            most = min(most, size - int((self.positions[rows] % size).max()))
        self.walks[0] = min(most, MAX_WALKS)
        table = 0
        for row, chunk in enumerate(chunks):
            self.stop_ids[row] = -1
            self.stop_ids[row, : len(chunk.stop_ids)] = chunk.stop_ids
            self.first_pages[row] = table
            table += len(chunk.page_table)

    def _fill_tokens(self, chunk: Chunk, row: int, length: int, table: int) -> None:
        page_size = self._attention.page_size
        self.token_ids[row : row + length] = chunk.token_ids
        positions = np.arange(chunk.start, chunk.start + length)
        self.positions[row : row + length] = positions
        first = self._rotation.first_row(chunk.prompt_length)
        self.rotary_rows[row : row + length] = positions + first
        pages = self.page_tables[table : table + len(chunk.page_table)]
        pages[:] = chunk.page_table
        offsets = positions % page_size
        self.slots[row : row + length] = pages[positions // page_size] * page_size + offsets

    def _fill_attention(
        self,
        chunks: Sequence[Chunk],
        lengths: Sequence[int],
        first_rows: Sequence[int],
        tables: Sequence[int],
    ) -> None:
        """List the units of attention, the longest first; split lone rows over their segments."""
        split, tile = self._splits_needed(lengths), self._rows_together(lengths)
        items: list[tuple[int, ...]] = []
        splits: list[tuple[int, ...]] = []
        num_partials = 0
        for chunk, length, row, table in zip(chunks, lengths, first_rows, tables, strict=True):
            num_segments = (chunk.start + length - 1) // self._attention.segment_size + 1
            fits = num_partials + num_segments <= _MAX_PARTIALS
            if split and length == 1 and num_segments > 1 and fits:
                splits.append((row, num_segments, num_partials, 0))
                for segment in range(num_segments):
                    slot = num_partials + segment
                    items.append((row, 1, chunk.start, table, segment, slot, 0, 0))
                num_partials += num_segments
                continue
            for first in range(0, length, tile):
                count, position = min(tile, length - first), chunk.start + first
                items.append((row + first, count, position, table, _WHOLE, 0, 0, 0))
        items.sort(key=lambda item: -(item[1] * (item[2] + item[1]) if item[4] == _WHOLE else 0))
        self.num_items[0], self.num_splits[0] = len(items), len(splits)
        if items:
            self.items[: len(items)] = items
        if splits:
            self.splits[: len(splits)] = splits

    def _splits_needed(self, lengths: Sequence[int]) -> bool:
        """Whether whole items alone would leave workers idle."""
        shape = self._attention
        return shape.num_threads > 1 and self._num_units(lengths, shape.query_tile) < (
            8 * shape.num_threads
        )

    def _rows_together(self, lengths: Sequence[int]) -> int:
        """Most rows of an item: fewer than it may have, where workers would end far apart.

        Each item reads all keys and values once more, which takes what some rows do.
        """
        most, workers = self._attention.query_tile, self._attention.num_threads

        several = [length for length in lengths if length > 1]

        def longest(rows: int) -> int:
            taken = min(rows, max(several, default=0)) + _ROWS_OF_READING
            return -(-self._num_units(several, rows) // workers) * taken

        return min((most, max(1, most // 2), max(1, most // 4)), key=longest)

    def _num_units(self, lengths: Sequence[int], rows_together: int) -> int:
        num_items = sum(-(-length // rows_together) for length in lengths)
        return num_items * self._attention.num_kv_heads
