"""Who is served first, who makes room, and who runs out of time."""

from __future__ import annotations

import itertools

import pytest

from dashinfer_lab.engine import EngineOptions, RequestOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.errors import DeadlineError
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate
from tests.engine.test_scheduler import generation, run, tokens


def core_of(runner: FakeRunner, **options: int) -> EngineCore:
    return EngineCore(runner, EngineOptions(**options), lambda: 0.0)


def of_priority(
    request_id: int, priority: int, count: int = 3, arrival: float = 0.0
) -> GenerationRequest:
    served = RequestOptions(priority=priority)
    return generation(request_id, [request_id] * 5, count, served=served, arrival=arrival)


def order_of_ends(core: EngineCore, requests: list[GenerationRequest]) -> list[int]:
    ended: list[int] = []
    while core.has_work:
        core.step()
        core.scheduler.check_integrity()
        ended += [r.request_id for r in requests if r.finished and r.request_id not in ended]
    return ended


def test_a_lower_number_is_served_first() -> None:
    core = core_of(FakeRunner(), max_running=1)
    requests = [of_priority(i, priority) for i, priority in enumerate([2, 0, 1, 0, -1])]
    for request in requests:
        core.add(request)

    assert order_of_ends(core, requests) == [4, 1, 3, 2, 0]


def test_a_newcomer_of_better_priority_takes_the_place_of_one_that_runs() -> None:
    runner = FakeRunner()
    core = core_of(runner, max_running=1)
    slow, urgent = of_priority(0, 1, 12), of_priority(1, 0)
    core.add(slow)
    core.step()
    core.step()
    core.add(urgent)

    assert order_of_ends(core, [slow, urgent]) == [1, 0]
    assert core.scheduler.num_preempted == 1
    assert tokens(slow) == runner.answer([0] * 5, 12)


def test_a_newcomer_of_the_same_priority_takes_nobody_s_place() -> None:
    core = core_of(FakeRunner(), max_running=1)
    requests = [of_priority(0, 1, 6, arrival=3.0), of_priority(1, 1, arrival=1.0)]
    core.add(requests[0])
    core.step()
    core.add(requests[1])

    assert order_of_ends(core, requests) == [0, 1]
    assert core.scheduler.num_preempted == 0


def test_nobody_waits_for_ever_behind_better_priorities() -> None:
    """A level is worth ten seconds: of urgent requests, one a second, 30 or so pass this one."""
    seconds = itertools.count()
    core = core_of(FakeRunner(), max_running=1)
    patient = of_priority(0, 3, arrival=0.0)
    core.add(patient)
    num_passed = 0
    for second in seconds:
        core.add(of_priority(1 + second, 0, 1, arrival=float(second)))
        core.step()
        core.scheduler.check_integrity()
        if patient.finished:
            break
        num_passed += 1
        assert second < 100

    assert 30 <= num_passed <= 33


def test_a_request_ends_when_its_time_is_over_with_what_it_has() -> None:
    now = [0.0]
    runner = FakeRunner()
    core = EngineCore(runner, EngineOptions(), lambda: now[0])
    short = generation(0, [1, 2], 50, served=RequestOptions(timeout_seconds=5.0))
    other = generation(1, [3], 12)
    for request in (short, other):
        core.add(request)
    for second in range(10):
        now[0] = float(second)
        core.step()
        core.scheduler.check_integrity()
    run(core)

    events = [short.events.take() for _ in range(6)]
    assert [e.token_id for e in events] == [*runner.answer([1, 2], 5), None]
    assert isinstance(events[-1].error, DeadlineError)
    assert "timeout_seconds=5" in str(events[-1].error)
    assert tokens(other) == runner.answer([3], 12)
    assert core.totals.num_expired == 1


def test_one_whose_time_is_over_in_the_queue_leaves_it() -> None:
    now = [0.0]
    core = EngineCore(FakeRunner(), EngineOptions(max_running=1), lambda: now[0])
    core.add(generation(0, [1], 20))
    core.add(queued := generation(1, [2], 3, served=RequestOptions(timeout_seconds=2.0)))
    core.step()
    now[0] = 2.0
    core.step()

    assert queued.finished
    assert queued.first_scheduled_seconds is None
    assert not core.scheduler.waiting


def test_the_last_one_s_time_may_be_over_too() -> None:
    now = [0.0]
    core = EngineCore(FakeRunner(), EngineOptions(), lambda: now[0])
    core.add(generation(0, [1], 20, served=RequestOptions(timeout_seconds=1.0)))
    core.step()
    now[0] = 1.0
    core.step()

    assert not core.has_work
    assert core.pool.num_used == 0


def test_a_deadline_is_the_error_of_that_request_alone(make_engine: MakeEngine) -> None:
    gate = Gate()
    engine = make_engine(FakeRunner(before_step=gate))
    params = SamplingParams(temperature=0, max_tokens=30)
    short = engine.submit([1], params, options=RequestOptions(timeout_seconds=1e-6))
    long = engine.submit([2], params)
    gate.open()

    assert short.completion(timeout=30).finish_reason == "error"
    with pytest.raises(DeadlineError):
        short.get()
    assert long.completion(timeout=30).finish_reason == "length"
    assert engine.stats().num_expired == 1
