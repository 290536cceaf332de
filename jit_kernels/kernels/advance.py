"""Advance: the drawn token of every row becomes its input, one position further on.

Ends a program that is walked several times in one call: `repeat` holds {walks wanted, walks done,
whether somebody waits}, of which any thread may set the last. Notes each walk's tokens; where a row
drew a token that stops it, or met NaN or infinity, or somebody waits, this walk becomes the last.
Every row is one token of one request and has logits, in the same order.
"""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, Variable, index, loop, select, when
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.attention_items import ITEM_WORDS
from jit_kernels.kernels.sample_request import POSITION_WORD, REQUEST_WORDS
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import I32, I64

__all__ = ["STOP_IDS", "advance"]

STOP_IDS = 8
"""Stop ids of a row; unused places hold -1."""

_ITEM_POSITION = 2


@kernel
def advance(
    repeat: Array[I64],
    rows: Array[I64],
    tokens_out: Array[I32],
    finite_out: Array[I32],
    stop_ids: Array[I32],
    tokens_of_walks: Array[I32],
    walk_stride: Value[I64],
    token_ids: Array[I32],
    positions: Array[I32],
    slots: Array[I64],
    page_tables: Array[I32],
    first_pages: Array[I64],
    num_items: Array[I64],
    items: Array[I64],
    requests: Array[I64],
) -> None:
    """Write row `walk` of `tokens_of_walks` [walks][walk_stride] and the next walk's inputs.

    `page_tables` from `first_pages[r]` on are row r's pages; `stop_ids` is [R][STOP_IDS]. A lone
    walk (`repeat[0]` 1) leaves everything as it is.
    """
    with when(worker().index.equals(0)):
        done = repeat[1] + 1
        with when(repeat[0] > 1):
            stopped = Variable(select(repeat[2].equals(0), index(0), 1))
            for row in loop(rows[0]):
                token = tokens_out[row]
                tokens_of_walks[(done - 1) * walk_stride + row] = token
                stopped.set(select(finite_out[row].equals(0), 1, stopped.get()))
                for place in range(STOP_IDS):
                    stops = token.equals(stop_ids[row * STOP_IDS + place])
                    stopped.set(select(stops, 1, stopped.get()))
            repeat[0] = select(stopped.get() > 0, done, repeat[0])
            with when(done < repeat[0]):
                for row in loop(rows[0]):
                    token_ids[row] = tokens_out[row]
                    position = positions[row] + 1
                    positions[row] = position
                    where = position.to(I64)
                    page = page_tables[first_pages[row] + where // PAGE_SIZE].to(I64)
                    slots[row] = page * PAGE_SIZE + where % PAGE_SIZE
                    word = row * REQUEST_WORDS + POSITION_WORD
                    requests[word] = requests[word] + 1
                for item in loop(num_items[0]):
                    word = item * ITEM_WORDS + _ITEM_POSITION
                    items[word] = items[word] + 1
        repeat[1] = done
