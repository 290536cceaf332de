from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from jit_kernels.activation_layout import REDUNDANT_ROWS
from jit_kernels.errors import RuntimeFault, ShapeError
from jit_kernels.runtime import CLAIM_COUNTER, Barrier, Operation, Pool, Program
from tests.runtime.compiled import (
    compiled,
    compiler,
    count_visits,
    count_walk,
    fill,
    rotate,
    take_items,
)

SIZE = 1003
# Enough steps that a missing barrier cannot hide behind lucky delays.
MANY_STEPS = 300


@pytest.fixture(scope="module", params=[1, 2, 3])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with Pool(request.param, compiler()) as pool:
        yield pool


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Pool]:
    with Pool(2, compiler()) as pool:
        yield pool


class Chain:
    """fill, then rotate twice: right only where each waits for the one before."""

    def __init__(
        self,
        pool: Pool,
        barrier: Barrier,
        rows: np.ndarray | None = None,
        chaos_seed: int | None = None,
    ) -> None:
        self.number = np.zeros(1, np.int64)
        self.values = [np.zeros(SIZE, np.int64) for _ in range(3)]
        first, second, third = self.values
        fill_code, rotate_code = compiled(fill), compiled(rotate)
        operations = [
            Operation(fill_code, (self.number, SIZE, first), barrier, rows),
            Operation(rotate_code, (first, SIZE, second), barrier, rows),
            Operation(rotate_code, (second, SIZE, third), barrier, rows),
        ]
        self.program = Program(pool, operations, chaos_seed=chaos_seed)

    def is_right(self, step: int) -> bool:
        """Whether a step with new numbers gives what it must."""
        self.number[0] = 10 * step
        self.program.run()
        return bool((self.values[2] == 10 * step + 2).all())


def test_operations_run_in_order(pool: Pool) -> None:
    chain = Chain(pool, Barrier.ALWAYS)

    assert all(chain.is_right(step) for step in range(1, 30))


def test_random_delays_do_not_change_a_right_program(pool: Pool) -> None:
    chain = Chain(pool, Barrier.ALWAYS, chaos_seed=7)

    assert all(chain.is_right(step) for step in range(1, 30))


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_random_delays_show_a_missing_barrier(two_workers: Pool, seed: int) -> None:
    chain = Chain(two_workers, Barrier.NEVER, chaos_seed=seed)

    assert not all(chain.is_right(step) for step in range(1, MANY_STEPS))


def test_a_shared_barrier_stands_where_rows_are_shared(two_workers: Pool) -> None:
    rows = np.array([REDUNDANT_ROWS + 1], np.int64)
    chain = Chain(two_workers, Barrier.SHARED, rows, chaos_seed=3)

    assert all(chain.is_right(step) for step in range(1, 30))


def test_a_shared_barrier_is_left_out_where_rows_are_redundant(two_workers: Pool) -> None:
    rows = np.array([REDUNDANT_ROWS], np.int64)
    chain = Chain(two_workers, Barrier.SHARED, rows, chaos_seed=3)

    assert not all(chain.is_right(step) for step in range(1, MANY_STEPS))


def test_the_rows_of_a_shared_barrier_are_read_at_every_step(two_workers: Pool) -> None:
    rows = np.array([REDUNDANT_ROWS], np.int64)
    chain = Chain(two_workers, Barrier.SHARED, rows, chaos_seed=3)
    chain.is_right(1)
    rows[0] = 2**40

    assert all(chain.is_right(step) for step in range(2, 30))


@pytest.mark.parametrize("rows", [None, np.zeros(1, np.int32), np.zeros(0, np.int64)])
def test_a_shared_barrier_needs_its_counter(two_workers: Pool, rows: np.ndarray | None) -> None:
    with pytest.raises(RuntimeFault, match="'norm' has a shared barrier"):
        Program(
            two_workers,
            [
                Operation(
                    compiled(count_visits), (np.zeros(2, np.int64),), Barrier.SHARED, rows, "norm"
                )
            ],
        )


def test_an_operation_must_fit_its_kernel(two_workers: Pool) -> None:
    with pytest.raises(ShapeError, match="count_visits takes 1 operands"):
        Program(two_workers, [Operation(compiled(count_visits), (1, 2))])


@pytest.mark.parametrize("chaos_seed", [None, 5])
def test_every_item_is_claimed_once_in_every_step(pool: Pool, chaos_seed: int | None) -> None:
    first, second = np.zeros(SIZE, np.int64), np.zeros(7, np.int64)
    code = compiled(take_items)
    program = Program(
        pool,
        [
            Operation(code, (SIZE, first, CLAIM_COUNTER), Barrier.NEVER),
            Operation(code, (7, second, CLAIM_COUNTER), Barrier.NEVER),
        ],
        chaos_seed=chaos_seed,
    )
    for _ in range(20):
        program.run()

    assert first.tolist() == [20] * SIZE
    assert second.tolist() == [20] * 7


def test_an_empty_program_does_nothing(pool: Pool) -> None:
    program = Program(pool, [])
    program.run()

    assert program.profile().seconds.tolist() == []


def test_a_program_keeps_what_it_needs_alive(two_workers: Pool) -> None:
    visits = np.zeros(2, np.int64)
    # The view is referred to by the operation alone.
    program = Program(two_workers, [Operation(compiled(count_visits), (visits[:],))])
    program.run()

    assert visits.tolist() == [1, 1]


def test_a_profile_times_a_real_step(pool: Pool) -> None:
    visits, many = np.zeros(3, np.int64), np.zeros(1 << 18, np.int64)
    number = np.array([4], np.int64)
    program = Program(
        pool,
        [
            Operation(compiled(count_visits), (visits,), label="small"),
            Operation(compiled(fill), (number, many.size, many), label="large"),
        ],
    )
    profiles = [program.profile() for _ in range(40)]
    small, large = np.min([profile.seconds for profile in profiles], axis=0)

    assert profiles[0].labels == ("small", "large")
    assert visits.tolist() == [40] * pool.num_threads + [0] * (3 - pool.num_threads)
    assert (many == 4).all()
    # 2 MB cannot be written in less than 2 us, a hundred times what the other takes.
    assert 2e-6 < large < 1
    assert 0 <= small < large
    assert profiles[0].total_seconds == pytest.approx(profiles[0].seconds.sum())


class Repeated:
    """A claimed operation, then the count of walks."""

    def __init__(self, pool: Pool, last: int = 99, chaos_seed: int | None = None) -> None:
        self.taken, self.repeat = np.zeros(SIZE, np.int64), np.zeros(2, np.int64)
        operations = [
            Operation(compiled(take_items), (SIZE, self.taken, CLAIM_COUNTER)),
            Operation(compiled(count_walk), (self.repeat, np.array([last], np.int64))),
        ]
        self.program = Program(pool, operations, chaos_seed=chaos_seed, repeat=self.repeat)

    def run(self, wanted: int) -> None:
        self.repeat[:] = wanted, 0
        self.program.run()


@pytest.mark.parametrize("chaos_seed", [None, 5])
def test_one_run_walks_as_often_as_wanted(pool: Pool, chaos_seed: int | None) -> None:
    repeated = Repeated(pool, chaos_seed=chaos_seed)

    for wanted in (1, 5, 2):
        repeated.taken[:] = 0
        repeated.run(wanted)

        assert repeated.repeat.tolist() == [wanted, wanted]
        assert (repeated.taken == wanted).all()


def test_the_last_operation_may_end_the_walks(pool: Pool) -> None:
    repeated = Repeated(pool, last=3)
    repeated.run(10)

    assert repeated.repeat.tolist() == [3, 3]
    assert (repeated.taken == 3).all()


def test_a_profile_adds_up_walks(pool: Pool) -> None:
    repeated = Repeated(pool)
    repeated.repeat[:] = 4, 0
    repeated.program.profile()

    assert (repeated.taken == 4).all()


@pytest.mark.parametrize(
    ("barrier", "repeat", "reason"),
    [
        (Barrier.NEVER, np.zeros(2, np.int64), "end with a barrier"),
        (Barrier.ALWAYS, np.zeros(1, np.int64), "two int64"),
        (Barrier.ALWAYS, np.zeros(2, np.int32), "two int64"),
    ],
)
def test_walks_that_could_not_be_told_apart_are_refused(
    two_workers: Pool, barrier: Barrier, repeat: np.ndarray, reason: str
) -> None:
    operation = Operation(compiled(count_visits), (np.zeros(2, np.int64),), barrier)

    with pytest.raises(RuntimeFault, match=reason):
        Program(two_workers, [operation], repeat=repeat)
