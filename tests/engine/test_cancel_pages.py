"""When a caller hears that its request was cancelled, the pages are free, wherever it stood."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

LONG = SamplingParams(temperature=0, max_tokens=50)


class Stand(NamedTuple):
    """Steps let through before the cancellation, what a step takes, and the steps in all."""

    num_steps: int
    max_chunk_tokens: int
    max_walks: int
    num_batches: int


STANDS = {
    "prefill, first chunk": Stand(0, 5, 1, 1),
    "prefill, second chunk": Stand(1, 5, 1, 2),
    "decode": Stand(3, 32, 1, 4),
    # The call that runs draws its four tokens, and no other begins.
    "decode, several tokens in a call": Stand(1, 32, 4, 5),
}


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.mark.parametrize("stand", STANDS.values(), ids=STANDS)
def test_a_request_that_runs_gives_its_pages_back(
    make_engine: MakeEngine, gate: Gate, stand: Stand
) -> None:
    runner = FakeRunner(before_step=gate, max_walks=stand.max_walks)
    engine = make_engine(runner, max_chunk_tokens=stand.max_chunk_tokens)
    handle = engine.submit([4] * 17, LONG)
    for _ in range(stand.num_steps):
        gate.wait_for_step()
        gate.let_through()
    gate.wait_for_step()
    assert engine.stats().num_pages_used > 0
    handle.cancel()
    gate.open()

    assert handle.completion(timeout=30).finish_reason == "cancelled"
    assert engine.stats().num_pages_used == 0
    assert engine.stats().num_running == 0
    assert len(runner.batches) <= stand.num_batches


def test_a_queued_request_leaves_with_the_step_that_runs(
    make_engine: MakeEngine, gate: Gate
) -> None:
    runner = FakeRunner(before_step=gate)
    engine = make_engine(runner, max_running=1)
    running = engine.submit([1], LONG)
    gate.wait_for_step()
    queued = engine.submit([2, 3], LONG)
    queued.cancel()
    gate.let_through()

    assert queued.completion(timeout=30).finish_reason == "cancelled"
    assert engine.stats().num_queued == 0
    assert len(runner.batches) <= 2
    gate.open()
    assert running.completion(timeout=30).token_ids == runner.answer([1], 50)
