from __future__ import annotations

import logging

import numpy as np
import pytest

from jit_kernels.runtime import Pool
from jit_kernels.runtime.contention import Contention
from tests.runtime.compiled import compiled, compiler, count_visits


def observe(contention: Contention, *runs: tuple[bool, float]) -> list[int]:
    """Workers after each run, given as (stalled, time)."""
    counts: list[int] = []
    for stalled, now in runs:
        contention.observe(stalled, now)
        counts.append(contention.num_active)
    return counts


def test_one_stall_changes_nothing() -> None:
    assert observe(Contention(8), (True, 1.0), (False, 1.1), (False, 1.2)) == [8, 8, 8]


def test_stalls_halve_the_workers_down_to_one() -> None:
    assert observe(Contention(6), *[(True, 1.0 + i) for i in range(5)]) == [6, 3, 1, 1, 1]


def test_workers_come_back_after_a_while() -> None:
    contention = Contention(4)
    observe(contention, (True, 1.0), (True, 1.0), (True, 1.0))

    assert observe(contention, (False, 1.1), (False, 1.3), (False, 1.35), (False, 1.6)) == [
        1,
        2,
        2,
        4,
    ]


def test_a_relapse_is_answered_at_once_and_held_longer() -> None:
    contention = Contention(2)
    observe(contention, (True, 1.0), (True, 1.0))
    assert observe(contention, (False, 1.25), (True, 1.3)) == [2, 1]

    assert observe(contention, (False, 1.55), (False, 1.75)) == [1, 2]


def test_a_hold_never_exceeds_its_limit() -> None:
    contention, now = Contention(2), 1.0
    for _ in range(20):
        observe(contention, (True, now), (True, now))
        now += 6.5
        assert observe(contention, (False, now)) == [2]


def test_long_quiet_forgives() -> None:
    contention = Contention(2)
    observe(contention, (True, 1.0), (True, 1.0), (False, 1.3), (False, 9.0))

    assert observe(contention, (True, 9.1), (False, 9.2)) == [2, 2]


def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        observe(Contention(4), *[(True, float(i)) for i in range(6)])

    assert [record.message[:39] for record in caplog.records] == [
        "other programs keep the processors busy"
    ]


class Prescribed(Contention):
    """Uses so many workers, run by run."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__(max(counts))
        self._counts = counts[1:]
        self.num_active = counts[0]

    def observe(self, stalled: bool, now_seconds: float) -> None:
        if self._counts:
            self.num_active = self._counts.pop(0)


@pytest.mark.parametrize("spin", [0, 5, 20_000])
def test_a_task_runs_on_the_active_workers_only(spin: int) -> None:
    visits = np.zeros(3, np.int64)
    counts = [3, 1, 1, 2, 3, 1, 3, 2] * 40
    code = compiled(count_visits)
    with Pool(3, compiler(), spin=spin, contention=Prescribed(counts)) as pool:
        for _ in counts:
            pool.run(code.address, code.record(visits).ctypes.data)

    assert visits.tolist() == [sum(count > worker for count in counts) for worker in range(3)]
