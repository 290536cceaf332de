"""Several consumers of one queue, and several callers of one model: none waits for another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest

from dashinfer_lab.allspark import AsModelConfig, AsStatus, Engine, ResultQueue
from dashinfer_lab.engine import RequestHandle
from dashinfer_lab.outputs import TokenEvent
from tests.allspark.conftest import NAME
from tests.held import held

GREEDY = {"do_sample": False, "early_stopping": False}


class Slow:
    """Has one token at once, and the last when it is let go; who waits for that waits long."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.go = threading.Event()
        self._told = False

    def get(self, timeout: float | None = None) -> TokenEvent:
        if not self._told:
            self._told = True
            return TokenEvent(5, "")
        if timeout == 0:
            raise TimeoutError
        self.waiting.set()
        assert self.go.wait(30)
        return TokenEvent(6, "", finish_reason="stop")


@pytest.mark.parametrize("get", ["GetNoWait", "GetWithTimeout", "GeneratedLength"])
def test_none_waits_for_a_consumer_who_waits(get: str) -> None:
    slow = Slow()
    queue = ResultQueue(cast("RequestHandle", slow))
    arguments: list[Any] = [1] if get == "GetWithTimeout" else []
    with ThreadPoolExecutor(2) as pool:
        try:
            synced = pool.submit(queue.synchronise)
            assert slow.waiting.wait(30)
            first, second = pool.submit(lambda: [getattr(queue, get)(*arguments)] * 2).result(10)
            beside = pool.submit(queue.GetWithTimeout, 1).result(10)
        finally:
            slow.go.set()
        assert synced.result(10) is AsStatus.ALLSPARK_SUCCESS

    if get == "GeneratedLength":
        assert (first, second) == (1, 1)
        assert beside is not None
    else:
        assert first.ids_from_generate == [5]
        assert beside is None
    rest = queue.Get()
    assert rest is not None
    assert rest.ids_from_generate == [6]
    assert queue.Get() is None


def test_who_waits_beside_another_gets_what_that_one_receives() -> None:
    slow = Slow()
    queue = ResultQueue(cast("RequestHandle", slow))
    with ThreadPoolExecutor(2) as pool:
        synced = pool.submit(queue.synchronise)
        assert slow.waiting.wait(30)
        assert queue.Get() is not None
        got = pool.submit(queue.Get)
        slow.go.set()
        element = got.result(10)

    assert element is not None
    assert element.ids_from_generate == [6]
    assert synced.result(10) is AsStatus.ALLSPARK_SUCCESS


class Drawn:
    """Has two tokens at once, and no more as yet."""

    def __init__(self) -> None:
        self._events = [TokenEvent(5, ""), TokenEvent(6, "")]

    def get(self, timeout: float | None = None) -> TokenEvent:
        if not self._events:
            raise TimeoutError(timeout)
        return self._events.pop()


def test_tokens_are_counted_once_however_often_they_are_asked_for() -> None:
    counted = list[int]()
    queue = ResultQueue(cast("RequestHandle", Drawn()), counted.append)

    assert queue.GeneratedLength() == queue.GeneratedLength() == 2
    assert counted == [1, 1]


def test_a_name_made_up_is_none_that_a_caller_gave(engine: Engine) -> None:
    with held(engine._models[NAME].llm.engine):
        _, first, _ = engine.start_request(NAME, [1, 7], GREEDY)
        number = int(first.name.rpartition("-")[2]) + 1
        given = {**GREEDY, "uuid": f"request-{number}"}
        _, mine, queue = engine.start_request(NAME, [1, 7], given)
        _, other, _ = engine.start_request(NAME, [1, 7], GREEDY)

        assert other.name != mine.name
        assert engine.stop_request(NAME, mine) is AsStatus.ALLSPARK_SUCCESS
    engine.sync_request(NAME, None)
    assert queue.GenerateStatus().name == "GenerateInterrupted"


def test_one_of_two_threads_gets_a_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    served = engine._models[NAME]
    submit, both = served.llm.engine.submit, threading.Barrier(2)

    def together(*arguments: Any) -> RequestHandle:
        with suppress(threading.BrokenBarrierError):  # where both may come this far, they meet
            both.wait(0.2)
        return submit(*arguments)

    monkeypatch.setattr(served.llm.engine, "submit", together)
    config = {**GREEDY, "uuid": "the same"}
    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(engine.start_request, NAME, [1, 7], config) for _ in range(2)]
        statuses = sorted(each.result()[0] for each in started)

    assert statuses == [AsStatus.ALLSPARK_SUCCESS, AsStatus.ALLSPARK_PARAM_ERROR]
    engine.sync_request(NAME, None)


def test_a_step_may_have_more_requests_than_a_sequence_has_tokens(tiny: Any) -> None:
    config = AsModelConfig("m", str(tiny), engine_max_length=6, engine_max_batch=9, num_threads=1)
    with Engine() as engine:
        engine.install_model(config)
        engine.start_model("m")
        started = [engine.start_request("m", [1, 7, i], GREEDY) for i in range(9)]
        assert engine.sync_request("m", None) is AsStatus.ALLSPARK_SUCCESS
        assert {queue.GeneratedLength() for _, _, queue in started} == {3}
        status, _, _ = engine.start_request("m", [1] * 6, GREEDY)

    assert status is AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR
