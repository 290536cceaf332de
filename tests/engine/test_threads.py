from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import pytest

from dashinfer_lab.engine import Engine
from dashinfer_lab.errors import EngineBusyError, EngineError, RequestError
from dashinfer_lab.events import StepEvent
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

GREEDY = SamplingParams(temperature=0, max_tokens=11)


def test_many_threads_may_submit_at_once(make_engine: MakeEngine) -> None:
    runner = FakeRunner(num_pages=40)
    engine = make_engine(runner)

    def ask(i: int) -> list[int]:
        return engine.submit([i, *range(i % 9)], GREEDY).completion(timeout=60).token_ids

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(60)))
    assert answers == [runner.answer([i, *range(i % 9)], 11) for i in range(60)]
    assert len(runner.threads) == 1


def test_requests_join_a_running_batch_and_leave_it(make_engine: MakeEngine) -> None:
    gate = Gate()
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner)
    first = engine.submit([1], SamplingParams(temperature=0, max_tokens=6))
    gate.wait_for_step()
    second = engine.submit([2], SamplingParams(temperature=0, max_tokens=2))
    gate.open()
    outputs = [first.completion(timeout=30), second.completion(timeout=30)]

    assert [len(batch) for batch in runner.batches] == [1, 2, 2, 1, 1, 1]
    assert [o.token_ids for o in outputs] == [runner.answer([1], 6), runner.answer([2], 2)]


def test_a_full_queue_refuses_and_the_engine_goes_on(make_engine: MakeEngine) -> None:
    gate = Gate()
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner, max_running=1, max_queued=2)
    running = engine.submit([1], GREEDY)
    gate.wait_for_step()
    queued = [engine.submit([2], GREEDY), engine.submit([3], GREEDY)]

    with pytest.raises(EngineBusyError, match="2 requests wait and at most 2 may"):
        engine.submit([4])
    with pytest.raises(EngineBusyError):
        engine.submit_choices([4], SamplingParams(n=2))
    assert engine.stats().num_refused == 3
    # Cancelling is never refused, and makes room.
    queued[0].cancel()
    gate.let_through()
    gate.wait_for_step()
    late = engine.submit([5], GREEDY)
    gate.open()
    assert queued[0].completion(timeout=30).finish_reason == "cancelled"
    for handle, prompt in [(running, [1]), (queued[1], [3]), (late, [5])]:
        assert handle.completion(timeout=30).token_ids == runner.answer(prompt, 11)


def test_more_choices_than_a_queue_holds_are_refused_even_when_waiting(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(max_queued=2)

    with pytest.raises(RequestError, match="3 requests at once exceed the 2"):
        engine.submit_choices([1], SamplingParams(n=3), block=True)
    with pytest.raises(RequestError, match="raise max_queued"):  # before a billion are made
        engine.submit_choices([1], SamplingParams(n=10**9))


def test_a_forked_child_is_told_that_it_has_no_engine(make_engine: MakeEngine) -> None:
    engine = make_engine()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a child that waits for ever must not outlive the test
        try:
            engine.submit([1], block=True).completion()
        except EngineError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        message = said.read()
    os.waitpid(child, 0)

    assert "make the engine after forking" in message
    assert engine.submit([1], GREEDY).completion(timeout=30).finish_reason == "length"


def test_who_asks_to_wait_gets_through_a_queue_shorter_than_the_work(
    make_engine: MakeEngine,
) -> None:
    runner = FakeRunner()
    engine = make_engine(runner, max_running=2, max_queued=1)
    handles = [engine.submit([i], GREEDY, block=True) for i in range(20)]

    assert [handle.completion(timeout=30).token_ids for handle in handles] == [
        runner.answer([i], 11) for i in range(20)
    ]


ASK: dict[str, Callable[[Engine], object]] = {
    "an answer": lambda engine: engine.submit([1]).completion(),
    "a token": lambda engine: engine.submit([1]).get(),
    "tokens": lambda engine: list(engine.submit([1])),
    "logits": lambda engine: engine.compute_logits([1]),
    "room": lambda engine: [engine.submit([1], block=True) for _ in range(3)],
}


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
def test_who_would_wait_on_the_engine_s_own_thread_is_told(
    make_engine: MakeEngine, ask: Callable[[Engine], object]
) -> None:
    runner = FakeRunner()
    engine = make_engine(runner, max_queued=2)
    told: list[EngineError] = []

    def wait(event: StepEvent) -> None:
        del event
        end()
        with pytest.raises(EngineError, match="own thread") as caught:
            ask(engine)
        told.append(caught.value)

    end = engine.subscribe(wait)
    assert engine.submit([5], GREEDY).completion(timeout=30).token_ids == runner.answer([5], 11)
    assert len(told) == 1
    assert engine.compute_logits([1]).shape == (1, 97)


def test_several_consumers_share_the_tokens_and_all_hear_of_the_end(
    make_engine: MakeEngine,
) -> None:
    runner = FakeRunner()
    handle = make_engine(runner).submit([1], SamplingParams(temperature=0, max_tokens=60))

    def consume(_: int) -> list[int]:
        return [token for event in iter(handle.get, None) if (token := event.token_id) is not None]

    with ThreadPoolExecutor(3) as pool:
        shares = list(pool.map(consume, range(3)))
    assert sorted(chain(*shares)) == sorted(runner.answer([1], 60))
    assert handle.output.token_ids == runner.answer([1], 60)


@pytest.mark.parametrize("timeout", ["soon", float("nan"), [1]], ids=str)
def test_a_timeout_that_is_no_number_is_refused(make_engine: MakeEngine, timeout: Any) -> None:
    handle = make_engine().submit([1], GREEDY)

    for wait in (handle.get, handle.completion):
        with pytest.raises(RequestError, match="timeout="):
            wait(timeout)


def test_an_idle_engine_takes_no_processor_time(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.submit([1], GREEDY).completion(timeout=30)
    before = time.process_time()
    threading.Event().wait(0.05)

    # A thread that spins would use all of the 50 ms.
    assert time.process_time() - before < 0.025


def test_the_engine_works_while_an_event_loop_runs(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)

    async def cell() -> list[int]:
        return engine.submit([1], GREEDY).completion(timeout=30).token_ids

    assert asyncio.run(cell()) == runner.answer([1], 11)
