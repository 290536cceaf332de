from __future__ import annotations

import pytest

from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

PROMPT = [5, 17, 3, 88, 41, 0, 2, 9, 11, 60, 4]


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("max_chunk_tokens", [1, 4, 32])
@pytest.mark.parametrize("max_logit_rows", [1, 3, 16])
def test_every_token_but_the_first_is_rated_however_the_prompt_was_chunked(
    make_engine: MakeEngine, count: int, max_chunk_tokens: int, max_logit_rows: int
) -> None:
    runner = FakeRunner(max_logit_rows=max_logit_rows)
    engine = make_engine(runner, max_chunk_tokens=max_chunk_tokens)
    params = SamplingParams(temperature=0, max_tokens=5, prompt_logprobs=count)
    handle = engine.submit(PROMPT, params)

    assert handle.completion(timeout=30).token_ids == runner.answer(PROMPT, 5)
    expected = [
        runner.rated(PROMPT[:end], PROMPT[end], count).as_dict() for end in range(1, len(PROMPT))
    ]
    assert handle.prompt_logprobs == [None, *expected]


def test_a_prompt_of_one_token_has_nothing_to_rate(make_engine: MakeEngine) -> None:
    handle = make_engine().submit([5], SamplingParams(max_tokens=2, prompt_logprobs=1))
    handle.completion(timeout=30)

    assert handle.prompt_logprobs == [None]


def test_prompt_logprobs_not_asked_for_are_none(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    handle = make_engine(runner).submit(PROMPT, SamplingParams(max_tokens=2))
    handle.completion(timeout=30)

    assert handle.prompt_logprobs is None
    assert all(chunk.logit_rows != "all" for batch in runner.batches for chunk in batch)


def test_only_the_first_of_several_choices_rates_the_prompt(make_engine: MakeEngine) -> None:
    handles = make_engine().submit_choices(PROMPT, SamplingParams(n=3, prompt_logprobs=0))
    for handle in handles:
        handle.completion(timeout=30)

    rated = [handle.prompt_logprobs is not None for handle in handles]
    assert rated == [True, False, False]


def test_a_preempted_request_rates_its_prompt_once(make_engine: MakeEngine) -> None:
    gate = Gate()
    runner = FakeRunner(num_pages=6, max_logit_rows=2, before_step=gate)
    engine = make_engine(runner, max_chunk_tokens=2)
    older = engine.submit([1], SamplingParams(temperature=0, max_tokens=20))
    gate.wait_for_step()
    younger = engine.submit(PROMPT, SamplingParams(temperature=0, max_tokens=8, prompt_logprobs=2))
    gate.open()

    assert older.completion(timeout=30).token_ids == runner.answer([1], 20)
    assert younger.completion(timeout=30).token_ids == runner.answer(PROMPT, 8)
    found = younger.prompt_logprobs
    assert found is not None
    assert len(found) == len(PROMPT)
    assert younger.metrics is not None
    assert younger.metrics.num_preemptions >= 1
