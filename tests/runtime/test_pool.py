from __future__ import annotations

import gc
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jit_kernels.errors import RuntimeFault
from jit_kernels.kernel import CompiledKernel
from jit_kernels.runtime import Operation, Pool, Program
from jit_kernels.runtime.threads import MAX_THREADS
from tests.runtime.compiled import (
    compiled,
    compiler,
    count_visits,
    gather_halved,
    load_float_state,
    store_float_state,
    wait_for,
)

DEFAULT_STATE = 0x1F80
FLUSHING_STATE = 0x1F80 | 1 << 15 | 1 << 6 | 3 << 13  # FTZ, DAZ, round toward zero
EXCEPTION_FLAGS = 0x3F
x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR is x86's")


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(2, compiler()) as pool:
        yield pool


def run(pool: Pool, code: CompiledKernel, *arguments: np.ndarray) -> None:
    pool.run(code.address, code.record(*arguments).ctypes.data)


def num_os_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def wait_until_os_threads_are(expected: int) -> None:
    # A joined thread may stay listed for a moment; pytest's timeout ends a wait in vain.
    while num_os_threads() != expected:
        os.sched_yield()


def test_a_pool_knows_how_long_its_caller_was_held_up_after_a_task(pool: Pool) -> None:
    visits = np.zeros(3, np.int64)
    assert pool.held_up_seconds == 0
    for _ in range(5):
        begin = time.monotonic()
        run(pool, compiled(count_visits), visits)

        assert 0 < pool.held_up_seconds < time.monotonic() - begin


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("spin", [None, 0, 100])
def test_every_worker_runs_a_task_once(num_threads: int, spin: int | None) -> None:
    visits = np.zeros(num_threads + 1, np.int64)
    with Pool(num_threads, compiler(), spin=spin) as pool:
        for _ in range(20):
            run(pool, compiled(count_visits), visits)

    assert visits.tolist() == [20] * num_threads + [0]


@pytest.mark.parametrize("num_threads", [0, -1, MAX_THREADS + 1])
def test_a_senseless_number_of_threads_is_refused(num_threads: int) -> None:
    with pytest.raises(RuntimeFault, match=f"a pool of {num_threads} threads"):
        Pool(num_threads, compiler())


def test_closing_joins_the_threads_and_may_be_repeated() -> None:
    before = num_os_threads()
    pool = Pool(3, compiler())
    assert num_os_threads() == before + 2
    pool.close()
    pool.close()

    wait_until_os_threads_are(before)
    assert "closed" in repr(pool)


def test_a_closed_pool_says_so() -> None:
    pool = Pool(2, compiler())
    pool.close()

    with pytest.raises(RuntimeFault, match="closed"):
        run(pool, compiled(count_visits), np.zeros(2, np.int64))


def test_a_forgotten_pool_leaves_no_thread() -> None:
    before = num_os_threads()
    pool = Pool(3, compiler())
    run(pool, compiled(count_visits), np.zeros(3, np.int64))
    del pool
    gc.collect()

    wait_until_os_threads_are(before)


def test_two_pools_do_not_disturb_each_other(pool: Pool) -> None:
    first, second = np.zeros(2, np.int64), np.zeros(3, np.int64)
    with Pool(3, compiler()) as other:
        for _ in range(20):
            run(pool, compiled(count_visits), first)
            run(other, compiled(count_visits), second)

    assert first.tolist() == [20] * 2
    assert second.tolist() == [20] * 3


def test_calls_from_several_threads_take_turns(pool: Pool) -> None:
    # Unordered, additions to one cell by two calls would get lost.
    visits = np.zeros(2, np.int64)
    program = Program(pool, [Operation(compiled(count_visits), (visits,))] * 50)
    callers = [
        threading.Thread(target=lambda: [program.run() for _ in range(10)]) for _ in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert visits.tolist() == [3 * 10 * 50] * 2


def test_other_python_threads_run_during_a_task(pool: Pool) -> None:
    flag, arrived = np.zeros(1, np.int32), np.zeros(1, np.int32)
    caller = threading.Thread(target=run, args=(pool, compiled(wait_for), flag, arrived))
    caller.start()
    while not arrived[0]:
        pass
    flag[0] = 1  # the task waits for this: had it kept the lock, nobody could write it
    caller.join()

    assert arrived[0] == 1


def test_an_interrupt_during_a_task_arrives_after_it_and_harms_nothing(pool: Pool) -> None:
    flag, arrived, visits = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(2, np.int64)
    main = threading.get_ident()

    def interrupt() -> None:
        while not arrived[0]:
            pass
        signal.pthread_kill(main, signal.SIGINT)
        flag[0] = 1

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        run(pool, compiled(wait_for), flag, arrived)
    sender.join()
    run(pool, compiled(count_visits), visits)

    assert visits.tolist() == [1, 1]


def test_workers_leave_signals_to_python(pool: Pool) -> None:
    (worker,) = pool.thread_ids
    status = Path(f"/proc/self/task/{worker}/status").read_text(encoding="utf-8")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)

    assert blocked >> (signal.SIGINT - 1) & 1
    assert blocked >> (signal.SIGTERM - 1) & 1
    assert not blocked >> (signal.SIGSEGV - 1) & 1


def test_pinned_workers_have_a_processor_each_until_the_block_ends(pool: Pool) -> None:
    before = os.sched_getaffinity(0)
    cpus = sorted(before)[:2]
    with pool.pinned(cpus):
        inside = [os.sched_getaffinity(thread) for thread in (0, *pool.thread_ids)]
    after = [os.sched_getaffinity(thread) for thread in (0, *pool.thread_ids)]

    assert inside[: len(cpus)] == [{cpu} for cpu in cpus]
    assert after == [before, before]


@pytest.fixture
def flushing_caller() -> Iterator[None]:
    """The calling thread flushes subnormals to zero and rounds toward zero."""
    set_state = compiled(load_float_state)
    set_state(np.array([FLUSHING_STATE], np.int32))
    yield
    set_state(np.array([DEFAULT_STATE], np.int32))


@x86_only
@pytest.mark.usefixtures("flushing_caller")
def test_every_worker_computes_in_the_default_state_and_the_caller_gets_its_own_back() -> None:
    states, caller = np.zeros(3, np.int32), np.zeros(1, np.int32)
    # The threads begin with a copy of the state of the thread that made them.
    with Pool(3, compiler()) as pool:
        run(pool, compiled(store_float_state), states)
    compiled(store_float_state)(caller)

    assert (states & ~EXCEPTION_FLAGS).tolist() == [DEFAULT_STATE] * 3
    assert caller[0] & ~EXCEPTION_FLAGS == FLUSHING_STATE


@x86_only
@pytest.mark.usefixtures("flushing_caller")
def test_subnormal_numbers_survive_in_every_worker() -> None:
    number = np.array([1 << 22], np.int32).view(np.float32)  # 2**-127
    halves = np.zeros(3, np.float32)
    with Pool(3, compiler()) as pool:
        run(pool, compiled(gather_halved), number, halves)

    assert halves.view(np.int32).tolist() == [1 << 21] * 3
