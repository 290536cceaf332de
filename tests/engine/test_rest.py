"""While nobody asks, the runner rests in short moments, and whoever asks is not kept waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from dashinfer_lab.engine import loop
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner

PARAMS = SamplingParams(temperature=0, max_tokens=3)


def eventually(found: Callable[[], int], expected: int) -> None:
    """Wait for it, ten seconds at most."""
    end = time.monotonic() + 10
    while found() != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert found() == expected


def test_an_idle_engine_rests_until_nothing_is_left(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    runner.moments_of_rest = 4
    make_engine(runner)
    eventually(lambda: runner.num_rests, 4)
    time.sleep(5 * loop._PAUSE_SECONDS)
    assert runner.num_rests == 4  # it sleeps


def test_after_an_answer_it_rests_again(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    eventually(lambda: runner.num_rests, 1)
    assert len(list(engine.submit([1, 2], PARAMS))) == 3
    eventually(lambda: runner.num_rests, 2)


@pytest.mark.parametrize("what", ["ask", "close"])
def test_a_rest_without_end_keeps_nobody_waiting(make_engine: MakeEngine, what: str) -> None:
    runner = FakeRunner()
    runner.moments_of_rest = 1 << 60
    engine = make_engine(runner)
    if what == "ask":
        assert len(list(engine.submit([1, 2], PARAMS))) == 3
    engine.close()
    assert runner.num_closed == 1


def test_whoever_waits_for_room_hears_of_it_before_the_rest(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def step(_: object) -> None:
        monkeypatch.setattr(loop, "_PAUSE_SECONDS", 60.0)
        begun.set()
        may_end.wait(10)

    engine = make_engine(FakeRunner(before_step=step))
    handle = engine.submit([1, 2], SamplingParams(max_tokens=1))
    assert begun.wait(10)
    with engine._loop.mailbox._room:
        may_end.set()
        assert engine._loop.mailbox._room.wait(10)
    assert len(list(handle)) == 1


def test_nobody_rests_beside_a_request(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_PAUSE_SECONDS", 0.0)
    begun, may_end = threading.Event(), threading.Event()
    rests: list[int] = []
    runner = FakeRunner()
    runner.moments_of_rest = 1 << 60

    def step(_: object) -> None:
        begun.set()
        may_end.wait(10)
        rests.append(runner.num_rests)

    runner.before_step = step
    engine = make_engine(runner)
    handle = engine.submit([1, 2], PARAMS)
    assert begun.wait(10)
    may_end.set()
    assert len(list(handle)) == 3
    assert len(set(rests)) == 1
