from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence

import pytest

from dashinfer_lab.engine import Chunk, ChunkResult, Engine
from dashinfer_lab.engine.request import Request
from dashinfer_lab.engine.scheduler import Scheduler
from dashinfer_lab.errors import EngineClosedError, EngineError, NonFiniteError
from dashinfer_lab.events import StepEvent
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

LONG = SamplingParams(temperature=0, max_tokens=50)


def test_a_request_that_meets_nan_ends_alone(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    harmless = {*runner.answer([1, 2], 50), *runner.answer([7], 50), 1, 2, 7}
    runner.poison = min(set(range(runner.vocab_size)) - harmless)
    engine = make_engine(runner)
    prompts = [[1, 2], [3, runner.poison, 5], [7]]
    sound, bad, other = [engine.submit(prompt, LONG) for prompt in prompts]

    output = bad.completion(timeout=30)
    assert (output.finish_reason, output.token_ids) == ("error", [])
    assert isinstance(output.error, NonFiniteError)
    for handle, prompt in [(sound, prompts[0]), (other, prompts[2])]:
        assert handle.completion(timeout=30).token_ids == runner.answer(prompt, 50)
    assert engine.stats().num_pages_used == 0


def test_who_iterates_gets_the_tokens_so_far_and_then_the_error(make_engine: MakeEngine) -> None:
    expected = FakeRunner().answer([1, 2], 16)
    engine = make_engine(FakeRunner(poison=expected[5]))
    handle = engine.submit([1, 2], SamplingParams(temperature=0))
    seen: list[int | None] = []

    with pytest.raises(NonFiniteError, match="request 0"):
        seen.extend(event.token_id for event in iter(handle.get, None))
    with pytest.raises(NonFiniteError):
        seen.extend(event.token_id for event in handle)
    assert handle.output.token_ids == expected[:6]


def test_an_error_of_the_model_reaches_all_requests_and_ends_the_engine(
    make_engine: MakeEngine,
) -> None:
    gate = Gate()

    def fail(chunks: Sequence[Chunk]) -> None:
        gate(chunks)
        raise ValueError("page fault")

    runner = FakeRunner(before_step=fail)
    engine = make_engine(runner, max_running=1)
    handles = [engine.submit([1, i], LONG) for i in range(3)]
    gate.wait_for_step()
    gate.open()

    errors: list[EngineError] = []
    for handle in handles:
        with pytest.raises(EngineError, match="failed in step 0.*page fault.*make a new") as caught:
            handle.completion(timeout=30)
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3
    assert all(isinstance(error.__cause__, ValueError) for error in errors)
    assert not engine.alive
    with pytest.raises(EngineError, match="page fault"):
        engine.submit([1])
    with pytest.raises(EngineError, match="page fault"):
        engine.compute_logits([1])
    engine.close()
    assert runner.num_closed == 1


def test_a_model_that_breaks_its_promise_is_an_engine_error(make_engine: MakeEngine) -> None:
    class Forgetful(FakeRunner):
        def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
            return super().step(chunks)[1:]

    with pytest.raises(EngineError, match="0 results for 1 chunks"):
        make_engine(Forgetful()).submit([1]).completion(timeout=30)


def test_a_model_that_draws_no_token_is_an_engine_error(make_engine: MakeEngine) -> None:
    class Silent(FakeRunner):
        def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
            return [ChunkResult() for _ in chunks]

    with pytest.raises(EngineError, match="drew no token"):
        make_engine(Silent()).submit([1]).completion(timeout=30)
    with pytest.raises(EngineError, match="owes request 0 logits"):
        make_engine(Silent()).compute_logits([1])


def test_a_request_that_cannot_be_taken_hears_of_it_as_all_others_do(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    engine = make_engine(FakeRunner(before_step=gate))
    running = engine.submit([1], LONG)
    gate.wait_for_step()

    def add(scheduler: Scheduler, request: Request) -> None:
        raise ZeroDivisionError(f"a fault of {scheduler} with {request}")

    monkeypatch.setattr(Scheduler, "add", add)
    lost, behind = engine.submit([2], LONG), engine.submit([3], LONG)
    gate.open()

    for handle in (running, lost, behind):
        with pytest.raises(EngineError, match="error of its own: ZeroDivisionError"):
            handle.completion(timeout=30)


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise ValueError("no words")


def test_an_error_that_cannot_be_printed_is_told_by_its_kind(make_engine: MakeEngine) -> None:
    def fail(chunks: Sequence[Chunk]) -> None:
        raise Unprintable(chunks)

    with pytest.raises(EngineError, match="Unprintable, which cannot be printed"):
        make_engine(FakeRunner(before_step=fail)).submit([1]).completion(timeout=30)


def test_closing_ends_open_requests_and_refuses_new_ones(make_engine: MakeEngine) -> None:
    gate = Gate()
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner, max_running=1)
    handles = [engine.submit([1, i], LONG) for i in range(2)]
    gate.wait_for_step()
    closers = [threading.Thread(target=engine.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    while engine.alive:
        pass
    gate.open()
    for closer in closers:
        closer.join()

    for handle in handles:
        with pytest.raises(EngineClosedError):
            handle.completion(timeout=30)
    with pytest.raises(EngineClosedError, match="make a new one"):
        engine.submit([1])
    engine.close()
    assert runner.num_closed == 1
    assert len(runner.threads) == 1


def test_leaving_the_with_block_closes() -> None:
    before = threading.active_count()
    runner = FakeRunner()
    with Engine(runner) as engine:
        assert engine.alive
    assert (engine.alive, runner.num_closed) == (False, 1)
    assert threading.active_count() == before


def test_a_forgotten_engine_is_closed_and_its_handles_hear_of_it() -> None:
    before = threading.active_count()
    gate = Gate()
    runner = FakeRunner(before_step=gate)
    engine = Engine(runner)
    handle = engine.submit([1], LONG)
    gate.wait_for_step()
    gate.open()
    gone = weakref.ref(engine)
    del engine
    gc.collect()

    assert gone() is None
    assert threading.active_count() == before
    assert runner.num_closed == 1
    assert handle.output.finish_reason in ("error", "length")


FORGETFUL_SCRIPT = """
from dashinfer_lab.engine import Engine
from tests.engine.fake_runner import FakeRunner

class Telling(FakeRunner):
    def close(self):
        print("closed")

engine = Engine(Telling())
handle = engine.submit([1])
engine.submit([1]).completion()
"""


def test_a_script_that_forgets_to_close_ends_and_closes_the_model() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL_SCRIPT], capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_a_model_that_fails_to_close_is_told_once() -> None:
    class Stuck(FakeRunner):
        def close(self) -> None:
            raise OSError("busy")

    engine = Engine(Stuck())
    with pytest.raises(EngineError, match="failed to close.*busy"):
        engine.close()
    engine.close()


@pytest.mark.parametrize("error", [ValueError("no widget"), SystemExit(1)], ids=["error", "exit"])
def test_a_subscriber_that_fails_is_dropped_and_the_rest_goes_on(
    make_engine: MakeEngine, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    engine = make_engine()
    seen: list[StepEvent] = []

    def broken(event: StepEvent) -> None:
        raise error

    engine.subscribe(broken)
    engine.subscribe(seen.append)
    with caplog.at_level(logging.ERROR, "dashinfer_lab"):
        assert engine.submit([1]).completion(timeout=30).finish_reason == "length"
        engine.close()

    assert len(seen) == 16
    assert [record.exc_info is not None for record in caplog.records] == [True]
