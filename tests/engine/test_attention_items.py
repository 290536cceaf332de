"""How a step's attention is cut into items: every row once, and enough of them for all workers."""

from __future__ import annotations

import pytest

from dashinfer_lab.engine import Chunk
from dashinfer_lab.engine.step_inputs import AttentionShape, RotationTables, StepInputs

_TILE = 16


def _inputs(num_threads: int) -> StepInputs:
    shape = AttentionShape(32, 128, _TILE, 3, 8, num_threads)
    return StepInputs(
        max_tokens=512, max_logit_rows=4, max_pages=512, logits_stride=16, vocab_size=16,
        attention=shape, rotation=RotationTables(16384, None),
    )  # fmt: skip


def _items(inputs: StepInputs, length: int, start: int) -> list[tuple[int, int, int]]:
    """(first row, rows, position) of the items of one chunk."""
    pages = range(-(-(start + length) // 32))
    inputs.fill([Chunk(0, [7] * length, start, pages, "none", None)])
    return [tuple(item[:3].tolist()) for item in inputs.items[: inputs.num_items[0]]]


@pytest.mark.parametrize(
    ("num_threads", "length", "most_rows"),
    [(1, 16, 16), (2, 16, 8), (2, 64, 16), (2, 512, 16), (8, 16, 8), (64, 16, 4), (2, 2, 2)],
)
def test_few_rows_are_cut_smaller_so_that_workers_end_together(
    num_threads: int, length: int, most_rows: int
) -> None:
    items = _items(_inputs(num_threads), length, 8000)

    rows = sorted(row for first, count, _ in items for row in range(first, first + count))
    assert rows == list(range(length))
    assert all(position == 8000 + first for first, _, position in items)
    assert max(count for _, count, _ in items) == most_rows


def test_rows_that_decode_beside_them_change_nothing() -> None:
    inputs = _inputs(2)
    decodes = [Chunk(k, [7], 40 * k, range(16), "none", None) for k in range(8)]
    inputs.fill([*decodes, Chunk(9, [7] * 16, 8000, range(251), "none", None)])

    items = inputs.items[: inputs.num_items[0]]
    assert sorted(items[items[:, 1] > 1][:, 1].tolist()) == [8, 8]
