from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from jit_kernels.runtime import Pool
from jit_kernels.runtime.contention import Contention
from jit_kernels.runtime.threads import delay_seconds, idle_of, idle_seconds
from tests.runtime.compiled import compiled, compiler, count_visits

BUSY, QUIET = (90, 100), (10, 100)


def observe(contention: Contention, *runs: tuple[tuple[int, int], float]) -> list[int]:
    """Workers after each window, given as ((cycles waited, cycles), its end)."""
    counts: list[int] = []
    for (waited, ran), now in runs:
        contention.begin(now - 0.16)
        contention.observe(waited, ran, now)
        counts.append(contention.num_active)
    return counts


def test_some_waiting_changes_nothing() -> None:
    assert observe(Contention(8), (QUIET, 1.0), ((44, 100), 1.1), (QUIET, 1.2)) == [8, 8, 8]


@pytest.mark.parametrize(("delayed", "active"), [(0.06, 1), (0.02, 2), (None, 2)])
def test_less_waiting_counts_where_threads_waited_for_a_processor(
    delayed: float | None, active: int
) -> None:
    told = iter([5.0])
    contention = Contention(2, lambda: next(told, None if delayed is None else 5.0 + delayed))

    assert observe(contention, ((30, 100), 1.0)) == [active]


def test_a_pool_tells_how_long_its_threads_waited_for_a_processor() -> None:
    with Pool(2, compiler()) as pool:
        assert pool.thread_ids
        first, later = delay_seconds(pool._blocks), delay_seconds(pool._blocks)

    assert (first is None) == (not Path("/proc/self/schedstat").exists())
    assert first is None or (later is not None and 0 < first <= later)


def test_one_long_wait_among_many_runs_changes_nothing() -> None:
    contention = Contention(4)
    for run in range(200):
        contention.begin(0.995 + run * 0.01)
        contention.observe(90 if run % 10 == 3 else 0, 100, 1.0 + run * 0.01)

    assert contention.num_active == 4


def test_waiting_halves_the_workers_down_to_one() -> None:
    assert observe(Contention(6), *[(BUSY, 1.0 + i) for i in range(4)]) == [3, 1, 1, 1]


def test_a_hosts_pause_is_no_reason_until_it_comes_again_and_again() -> None:
    waited_for_processors = 5.0
    contention = Contention(2, lambda: waited_for_processors)

    assert observe(contention, (BUSY, 1.0), (BUSY, 1.2), (QUIET, 1.4), (BUSY, 1.6)) == [2] * 4
    assert observe(contention, (BUSY, 1.8), (BUSY, 2.0)) == [2, 1]


def test_workers_come_back_after_a_while() -> None:
    contention = Contention(4)
    observe(contention, (BUSY, 1.0), (BUSY, 1.1))

    back = observe(contention, (QUIET, 1.2), (QUIET, 1.31), (QUIET, 1.4), (QUIET, 1.52))
    assert back == [1, 2, 2, 4]


@pytest.mark.parametrize(
    ("idle", "delayed", "active"),
    [(0.05, 0.1, 1), (0.05, 0.0, 1), (0.05, None, 1), (0.2, 0.1, 2), (None, 0.1, 2)],
)
def test_workers_stay_away_while_processors_are_taken_and_even_fewer_wait(
    idle: float | None, delayed: float | None, active: int
) -> None:
    contention = Contention(2, lambda: waited, lambda: rested)
    waited, rested = (None if it is None else 70.0 for it in (delayed, idle))
    before = observe(contention, (BUSY, 0.6), (BUSY, 0.8), (BUSY, 1.0))
    waited, rested = (None if it is None else 70.0 + it for it in (delayed, idle))

    assert (before[-1], observe(contention, (QUIET, 1.25))) == (1, [active])


def test_workers_that_hardly_wait_are_joined_after_a_long_while() -> None:
    contention = Contention(2, lambda: 7.0, lambda: 7.0)  # nobody idle, nobody delayed
    windows = [(BUSY, 0.6), (BUSY, 0.8), (BUSY, 1.0), (QUIET, 5.0), (QUIET, 13.7), (QUIET, 14.0)]

    assert observe(contention, *windows) == [2, 2, 1, 1, 1, 2]


@pytest.mark.parametrize(("workers", "delayed", "active"), [(2, 0.12, 1), (2, 0.1, 2), (8, 0.5, 4)])
def test_long_delays_count_however_short_the_waits(
    workers: int, delayed: float, active: int
) -> None:
    told = iter([5.0])
    contention = Contention(workers, lambda: next(told, 5.0 + delayed))

    assert observe(contention, (QUIET, 1.0)) == [active]


def test_workers_come_back_once_others_are_gone() -> None:
    rested = 5.0
    contention = Contention(2, idle=lambda: rested)

    assert observe(contention, (BUSY, 1.0), (QUIET, 1.25), (QUIET, 1.5)) == [1, 1, 1]
    rested = 5.24
    assert observe(contention, (QUIET, 1.75)) == [2]


STAT = b"""cpu  9 9 9 900 90 9 9 9 9 9
cpu0 1 0 2 300 10 0 0 0 0 0
cpu1 1 0 2 400 20 0 0 0 0 0
cpu11 1 0 2 500 30 0 0 0 0 0
intr 12345 0 0
"""


@pytest.mark.parametrize(("cpus", "ticks"), [([0], 310), ([1, 11], 950), ([0, 2], None)])
def test_idle_time_is_that_of_the_processors_in_use(cpus: list[int], ticks: int | None) -> None:
    expected = None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")

    assert idle_of(STAT, cpus) == expected
    assert idle_of(b"cpu0 1 0", cpus) is None


def test_the_system_s_own_count_is_read() -> None:
    assert (idle_seconds() is None) == (not Path("/proc/stat").exists())


def test_a_relapse_is_held_longer() -> None:
    contention = Contention(2)
    assert observe(contention, (BUSY, 1.0), (QUIET, 1.25), (BUSY, 1.35)) == [1, 2, 1]

    assert observe(contention, (QUIET, 1.6), (QUIET, 1.8)) == [1, 2]


def test_a_hold_never_exceeds_its_limit() -> None:
    contention, now = Contention(2), 1.0
    for _ in range(20):
        observe(contention, (BUSY, now))
        now += 3.3
        assert observe(contention, (QUIET, now)) == [2]
        now += 0.1


def test_long_quiet_forgives() -> None:
    contention = Contention(2)
    observe(contention, (BUSY, 1.0), (QUIET, 1.25), (BUSY, 1.35), (QUIET, 1.8), (QUIET, 9.0))

    assert observe(contention, (BUSY, 9.1), (QUIET, 9.32)) == [1, 2]


def test_it_is_said_once_a_process(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Contention, "told", False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            observe(Contention(4), *[(BUSY, float(i)) for i in range(1, 6)])

    assert [record.message[:39] for record in caplog.records] == [
        "other programs keep the processors busy"
    ]


class Prescribed(Contention):
    """Uses so many workers, run by run."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__(max(counts))
        self._counts = counts[1:]
        self.num_active = counts[0]

    def observe(self, waiting: int, running: int, now_seconds: float) -> None:
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
