from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernels.advance import STOP_IDS, advance
from jit_kernels.kernels.attention_items import ITEM_WORDS
from jit_kernels.kernels.sample_request import POSITION_WORD, REQUEST_WORDS
from jit_kernels.reference import advance as reference
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import compiled, each_isa

MOST_ROWS = 9
WALKS = 3


@dataclass
class Step:
    """Operands of `advance` for some rows, each a page before, at or after a page's end."""

    num_rows: int
    walks: np.ndarray = field(default_factory=lambda: np.array([WALKS, 0, 0], np.int64))

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.num_rows)
        rows = self.num_rows
        self.positions = guarded(rng.choice([0, 30, 31, 32, 63, 200], rows).astype(np.int32))
        self.pages = [rng.permutation(64)[:8].tolist() for _ in range(rows)]
        self.page_tables = guarded(np.array(self.pages, np.int32).reshape(-1))
        self.first_pages = guarded(np.arange(rows, dtype=np.int64) * 8)
        self.token_ids = guarded(rng.integers(0, 100, rows).astype(np.int32))
        self.slots = guarded(np.zeros(rows, np.int64))
        self.drawn = guarded(rng.integers(100, 200, rows).astype(np.int32))
        self.finite = guarded(np.ones(rows, np.int32))
        self.stop_ids = guarded(np.full((rows, STOP_IDS), -1, np.int32))
        self.noted = guarded(np.zeros((WALKS, MOST_ROWS), np.int32))
        self.items = guarded(rng.integers(0, 99, (rows + 2, ITEM_WORDS)))
        self.requests = guarded(rng.integers(0, 99, (rows, REQUEST_WORDS)))

    def run(self, isa: Isa, num_workers: int = 2) -> None:
        code = compiled(advance, isa)
        for worker in range(num_workers):
            code(
                self.walks, np.array([self.num_rows]), self.drawn, self.finite, self.stop_ids,
                self.noted, MOST_ROWS, self.token_ids, self.positions, self.slots,
                self.page_tables, self.first_pages, np.array([len(self.items)]), self.items,
                self.requests, worker=worker, num_workers=num_workers,
            )  # fmt: skip

    def state(self) -> reference.Decoding:
        return reference.Decoding(
            self.token_ids.copy(),
            self.positions.copy(),
            self.slots.copy(),
            self.requests[:, POSITION_WORD].copy(),
            self.items[:, 2].copy(),
            self.pages,
        )

    def expected(self) -> reference.Decoding:
        stops = self.stop_ids.tolist()
        hurried = bool(self.walks[2])
        return reference.advance(
            self.state(), self.drawn.copy(), self.finite, stops, hurried=hurried
        )


def assert_equal(found: reference.Decoding, expected: reference.Decoding) -> None:
    for name in ("token_ids", "positions", "slots", "draw_positions", "item_positions"):
        assert (getattr(found, name) == getattr(expected, name)).all(), name


@each_isa
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_drawn_tokens_are_the_next_inputs(isa: Isa, rows: int) -> None:
    step = Step(rows)
    untouched = np.delete(step.requests, POSITION_WORD, axis=1).copy()
    expected = step.expected()

    step.run(isa)

    assert_equal(step.state(), expected)
    assert step.walks[:2].tolist() == [WALKS, 1]
    assert (step.noted[0, :rows] == step.drawn).all()
    assert (np.delete(step.requests, POSITION_WORD, axis=1) == untouched).all()


@pytest.mark.parametrize("place", [0, STOP_IDS - 1])
def test_a_stop_id_ends_the_walks(place: int) -> None:
    step = Step(5)
    step.stop_ids[3, place] = step.drawn[3]
    expected = step.expected()

    step.run(AVX2)

    assert_equal(step.state(), expected)
    assert step.walks[:2].tolist() == [1, 1]
    assert (step.noted[0, :5] == step.drawn).all()


def test_another_rows_stop_id_ends_nothing() -> None:
    step = Step(2)
    step.drawn[:] = 101, 102
    step.stop_ids[0, 0] = 102

    step.run(AVX2)

    assert step.walks[:2].tolist() == [WALKS, 1]


def test_nan_ends_the_walks() -> None:
    step = Step(4)
    step.finite[2] = 0

    step.run(AVX2)

    assert step.walks[:2].tolist() == [1, 1]


def test_no_token_ends_the_walks() -> None:
    step = Step(3)
    step.drawn[1] = -1  # every id of the row is banned

    step.run(AVX2)

    assert step.walks[:2].tolist() == [1, 1]


def test_the_last_walk_prepares_no_other() -> None:
    step = Step(3)
    step.walks[:2] = WALKS, WALKS - 1
    before = step.state()

    step.run(AVX2)

    assert_equal(step.state(), before)
    assert step.walks[:2].tolist() == [WALKS, WALKS]
    assert (step.noted[WALKS - 1, :3] == step.drawn).all()


def test_a_lone_walk_leaves_everything_as_it_is() -> None:
    step = Step(3)
    step.walks[:2] = 1, 0
    before = step.state()

    step.run(AVX2)

    assert_equal(step.state(), before)
    assert step.walks[:2].tolist() == [1, 1]
    assert not step.noted.any()


def test_whoever_waits_ends_the_walks() -> None:
    step = Step(3)
    step.walks[2] = 1
    expected = step.expected()

    step.run(AVX2)

    assert_equal(step.state(), expected)
    assert step.walks.tolist() == [1, 1, 1]
    assert (step.noted[0, :3] == step.drawn).all()
