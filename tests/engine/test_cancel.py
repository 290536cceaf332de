from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from dashinfer_lab.engine import Engine, RequestHandle
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

LONG = SamplingParams(temperature=0, max_tokens=50)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def pages_used(engine: Engine) -> int:
    return engine.stats().num_pages_used


def test_a_queued_request_leaves_at_the_next_step(make_engine: MakeEngine, gate: Gate) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner, max_running=1)
    first = engine.submit([1], SamplingParams(temperature=0, max_tokens=3))
    gate.wait_for_step()
    queued = engine.submit([2, 3], LONG)
    queued.cancel()
    gate.open()

    output = queued.completion(timeout=30)
    assert (output.finish_reason, output.token_ids) == ("cancelled", [])
    assert first.completion(timeout=30).token_ids == runner.answer([1], 3)
    assert all(len(batch) == 1 and batch[0].start < 4 for batch in runner.batches)


def test_prefill_stops_within_one_chunk_and_pages_are_free(
    make_engine: MakeEngine, gate: Gate
) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner, max_chunk_tokens=5)
    handle = engine.submit([4] * 40, LONG)
    gate.wait_for_step()
    gate.let_through()
    gate.wait_for_step()
    assert pages_used(engine) == 10
    handle.cancel()
    gate.open()

    assert handle.completion(timeout=30).finish_reason == "cancelled"
    assert len(runner.batches) == 2
    assert engine.submit([1]).completion(timeout=30).finish_reason == "length"
    assert pages_used(engine) == 0


def test_decode_stops_within_one_step_and_keeps_what_came(
    make_engine: MakeEngine, gate: Gate
) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner)
    handle = engine.submit([4] * 6, LONG)
    for _ in range(3):
        gate.wait_for_step()
        gate.let_through()
    gate.wait_for_step()
    handle.cancel()
    handle.cancel()
    gate.open()

    output = handle.completion(timeout=30)
    assert output.finish_reason == "cancelled"
    assert output.token_ids == runner.answer([4] * 6, 4)
    assert len(runner.batches) == 4


def test_cancelling_gives_the_text_that_was_held_back(make_engine: MakeEngine, gate: Gate) -> None:
    runner = FakeRunner(before_step=gate)
    a, b, *_ = runner.answer([4], 2)
    handle = make_engine(runner).submit(
        [4],
        SamplingParams(
            temperature=0, max_tokens=50, stop=chr(ord("A") + a) + chr(ord("A") + b) + "\0"
        ),
    )
    gate.wait_for_step()
    gate.let_through()
    gate.wait_for_step()
    handle.cancel()
    gate.open()

    assert handle.completion(timeout=30).text == chr(ord("A") + a) + chr(ord("A") + b)


def test_cancelling_after_the_end_changes_nothing(make_engine: MakeEngine) -> None:
    handle = make_engine().submit([1])
    before = handle.completion(timeout=30)
    handle.cancel()

    assert handle.completion(timeout=30) == before
    assert handle.get() is None


def leave_loop(handles: list[RequestHandle]) -> None:
    for _ in handles[0]:
        break


def drop(handles: list[RequestHandle]) -> None:
    handles.clear()


@pytest.mark.parametrize("give_up", [leave_loop, drop])
def test_giving_up_on_a_request_cancels_it(
    make_engine: MakeEngine, gate: Gate, give_up: Callable[[list[RequestHandle]], None]
) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner)
    handles = [engine.submit([4] * 6, LONG)]
    gate.wait_for_step()
    gate.let_through()
    gate.wait_for_step()
    give_up(handles)
    gc.collect()
    gate.open()
    engine.submit([1]).completion(timeout=30)

    # It would have run for 50 steps; the other one took 16.
    assert pages_used(engine) == 0


def test_one_cancelled_request_leaves_the_others_as_they_are(
    make_engine: MakeEngine, gate: Gate
) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner)
    handles = [engine.submit([i, 9], LONG) for i in range(5)]
    gate.wait_for_step()
    handles[2].cancel()
    gate.open()
    outputs = [handle.completion(timeout=30) for handle in handles]

    assert [o.finish_reason == "cancelled" for o in outputs] == [False, False, True, False, False]
    for i in (0, 1, 3, 4):
        assert outputs[i].token_ids == runner.answer([i, 9], 50)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell that runs tests in the background has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize("wait", ["completion", "iterate", "logits"])
def test_an_interrupt_in_a_wait_cancels_and_the_next_call_works(
    make_engine: MakeEngine, gate: Gate, wait: str
) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner, max_chunk_tokens=5)
    kept: list[RequestHandle] = []  # so that it is not the dropped handle that cancels

    def interrupt() -> None:
        gate.wait_for_step()
        gate.let_through()
        gate.wait_for_step()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        _wait(engine, wait, kept)
    interrupter.join()
    gate.open()

    assert engine.submit([1]).completion(timeout=30).finish_reason == "length"
    assert pages_used(engine) == 0
    assert len(runner.batches) <= 2 + 16


def _wait(engine: Engine, how: str, kept: list[RequestHandle]) -> None:
    if how == "logits":
        engine.compute_logits([4] * 40)
        return
    kept.append(engine.submit([4] * 40, LONG))
    if how == "completion":
        kept[0].completion()
    for _ in kept[0]:
        pass


def test_a_partial_answer_is_kept_after_an_interrupt(make_engine: MakeEngine, gate: Gate) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner)
    handle = engine.submit([4], LONG)
    for _ in range(3):
        gate.wait_for_step()
        gate.let_through()
    gate.wait_for_step()

    assert handle.output.token_ids == runner.answer([4], 3)
    assert handle.output.finish_reason is None


def test_a_wait_that_takes_too_long_is_a_timeout_and_no_cancel(
    make_engine: MakeEngine, gate: Gate
) -> None:
    runner = FakeRunner(before_step=gate)
    handle = make_engine(runner).submit([4], SamplingParams(temperature=0, max_tokens=3))

    with pytest.raises(TimeoutError):
        handle.get(timeout=0.001)
    with pytest.raises(TimeoutError):
        handle.completion(timeout=0.001)
    gate.open()
    assert handle.completion(timeout=30).token_ids == runner.answer([4], 3)
