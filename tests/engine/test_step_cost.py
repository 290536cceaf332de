from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from dashinfer_lab.engine import Chunk, EngineOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.step_cost import StepCost, StepKind, StepWork
from tests.engine.fake_runner import FakeRunner
from tests.engine.test_scheduler import generation, shapes, tokens


def seconds_of(work: StepWork) -> float:
    return 0.005 + 0.001 * work.num_tokens + 0.002 * work.num_logit_rows + 1e-6 * work.num_pairs


def kind_of(work: StepWork) -> StepKind:
    if work.num_tokens == work.num_logit_rows:
        return StepKind.ALONE
    return StepKind.BESIDE if work.num_logit_rows else StepKind.PROMPTS


def learnt() -> StepCost:
    cost, random = StepCost(), np.random.default_rng(3)
    for _ in range(300):
        work = StepWork()
        for start in random.integers(0, 2000, random.integers(0, 8)).tolist():
            work = work.with_span(start, 1, 1)
        if random.random() < 0.5 or work == StepWork():
            start, length = random.integers(0, 2000), random.integers(1, 200)
            work = work.with_span(int(start), int(length), 0)
        cost.observe(work, seconds_of(work), kind_of(work))
    return cost


def test_the_time_of_a_step_is_learnt_from_others() -> None:
    cost = learnt()
    work = StepWork().with_span(100, 1, 1).with_span(700, 50, 0)

    # Exact times have an exact solution; sweeps come within a few percent of it.
    assert cost.predict(work) == pytest.approx(seconds_of(work), rel=0.05)


@pytest.mark.parametrize("start", [0, 31, 1500])
def test_a_chunk_takes_the_time_it_may(start: int) -> None:
    cost = learnt()
    length = int(cost.tokens_within(0.1, start))
    base = cost.predict(StepWork())

    assert cost.predict(StepWork().with_span(start, length, 0)) - base <= 0.1
    assert cost.predict(StepWork().with_span(start, length + 2, 0)) - base > 0.1


def test_without_cost_any_number_fits_and_without_time_none() -> None:
    assert math.isinf(StepCost().tokens_within(0.1, 5))
    assert StepCost().tokens_within(0.0, 5) == 0
    assert learnt().tokens_within(-1.0, 5) == 0


def test_predictions_begin_with_the_first_step_and_hold_for_twice_its_tokens() -> None:
    cost = StepCost()
    assert not cost.known
    cost.observe(StepWork().with_span(0, 30, 1), 0.040, StepKind.PROMPTS)

    assert cost.known
    assert cost.predict(StepWork().with_span(0, 30, 1)) == pytest.approx(0.040)
    assert cost.reach == 60


def test_what_few_steps_leave_open_counts_as_the_price_of_tokens() -> None:
    cost = StepCost()
    cost.observe(StepWork().with_span(0, 100, 1), 0.100, StepKind.PROMPTS)
    assert cost.tokens_within(0.010, 0) == pytest.approx(10, rel=0.01)
    assert cost.predict(StepWork().with_span(100, 1, 1)) < 0.002
    cost.observe(StepWork().with_span(100, 1, 1), 0.020, StepKind.ALONE)

    # What is behind 20 ms for one token is told by steps of one size no more; 100 take 80 more.
    assert cost.predict(StepWork().with_span(101, 1, 1)) == pytest.approx(0.020, rel=0.02)
    assert cost.tokens_within(0.008, 0) == pytest.approx(10, rel=0.05)


def test_one_slow_step_is_outweighed_by_the_next_ones() -> None:
    cost = StepCost()
    # Weights came from the disk.
    cost.observe(StepWork().with_span(0, 500, 1), 5.0, StepKind.PROMPTS)
    for i in range(10):
        for length in (1, 20, 60):
            work = StepWork().with_span(i, length, 1)
            cost.observe(work, seconds_of(work), kind_of(work))
    work = StepWork().with_span(0, 40, 1)

    assert cost.predict(work) == pytest.approx(seconds_of(work), rel=0.15)


def test_a_step_tells_something_before_it_is_trusted() -> None:
    cost = StepCost()
    cost.observe(StepWork().with_span(0, 3, 1), 0.010, StepKind.PROMPTS)
    assert (cost.telling_tokens, cost.reach) == (16, 16)
    cost.observe(StepWork().with_span(0, 16, 1), 0.011, StepKind.PROMPTS)
    assert (cost.telling_tokens, cost.reach) == (0, 32)


class Clock:
    """A machine on which each token of a step takes a millisecond, and each step ten."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_prompts_lengthen_a_step_no_more_than_they_may() -> None:
    clock = Clock()

    def compute(chunks: Sequence[Chunk]) -> None:
        clock.seconds += 0.010 + 0.001 * sum(len(chunk.token_ids) for chunk in chunks)

    runner = FakeRunner(max_tokens=200, num_pages=1000, context_length=2000, before_step=compute)
    core = EngineCore(runner, EngineOptions(max_slowdown=3.0), clock)
    decoders = [generation(i, [i] * (20 + i), 300) for i in range(4)]
    for decoder in decoders:
        core.add(decoder)
        core.step()
    for _ in range(8):
        core.step()
    core.add(prompt := generation(9, list(range(90)) * 10, 2))
    runner.batches.clear()
    for _ in range(1000):
        if prompt.finished:
            break
        core.step()

    # Four decodes take 14 ms, three times that is 42 ms: 28 tokens more.
    chunks = [length for shape in shapes(runner) for i, length in shape if i == 9]
    assert tokens(prompt) == runner.answer(list(range(90)) * 10, 2)
    assert all(2 <= length <= 31 for length in chunks[:-2])
    assert np.median(chunks[:-2]) >= 24
    assert all(sum(i != 9 for i, _ in shape) == 4 for shape in shapes(runner))


def test_a_prompt_goes_on_though_no_time_is_left() -> None:
    ticks = itertools.count()
    runner = FakeRunner(max_tokens=64, num_pages=200, context_length=500)
    core = EngineCore(runner, EngineOptions(max_step_seconds=1e-3), lambda: float(next(ticks)))
    for i in range(4):
        core.add(generation(i, [i] * 20, 12))
        for _ in range(3):
            core.step()
    runner.batches.clear()
    core.add(prompt := generation(9, [5] * 80, 1))
    while not prompt.finished:
        core.step()

    assert [length for shape in shapes(runner) for i, length in shape if i == 9] == [2] * 40
