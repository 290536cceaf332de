from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dashinfer_lab.engine import EngineOptions, RequestOptions
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner


@pytest.mark.parametrize(
    ("token_ids", "message"),
    [
        ([], "empty"),
        ([3, 97], "token id 97 at position 1 is not one of the model's 0..96"),
        ([-1], "token id -1 at position 0"),
        ([10**5000], r"token id \(int\) at position 0"),
        ([1.5], "whole numbers"),
        ([True], "True is a truth value"),
        (None, "whole numbers"),
        (["a"], "whole numbers"),
        (7, "whole numbers"),
    ],
)
def test_a_prompt_that_is_no_list_of_known_ids_is_refused(
    make_engine: MakeEngine, token_ids: list[int], message: str
) -> None:
    engine = make_engine()

    with pytest.raises(RequestError, match=message):
        engine.submit(token_ids)
    with pytest.raises(RequestError, match=message):
        engine.compute_logits(token_ids)
    assert engine.submit([1]).completion(timeout=30).finish_reason == "length"


@pytest.mark.parametrize("value", [5, "x", {"n": 1}, RequestOptions], ids=str)
def test_options_and_params_of_another_kind_are_refused(
    make_engine: MakeEngine, value: Any
) -> None:
    engine = make_engine()

    with pytest.raises(RequestError, match="options=.*give RequestOptions"):
        engine.submit([1], options=value)
    with pytest.raises(RequestError, match="params=.*give SamplingParams"):
        engine.submit_choices([1], value)
    assert engine.submit([1]).completion(timeout=30).finish_reason == "length"


def test_ids_may_come_in_an_array(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    handle = make_engine(runner).submit(
        np.array([5, 6, 7], np.int64), SamplingParams(temperature=0, max_tokens=2)
    )

    assert handle.completion(timeout=30).token_ids == runner.answer([5, 6, 7], 2)
    assert handle.prompt_token_ids == [5, 6, 7]


def test_a_request_beyond_the_context_is_refused_with_the_three_numbers(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(FakeRunner(context_length=20))

    with pytest.raises(RequestError, match=r"13 tokens and 8 new .* context of 20"):
        engine.submit([1] * 13, SamplingParams(max_tokens=8))
    assert (
        len(engine.submit([1] * 13, SamplingParams(max_tokens=7)).completion(timeout=30).token_ids)
        == 7
    )


@pytest.mark.parametrize("max_tokens", [None, 1])
def test_a_prompt_that_fills_the_context_is_refused(
    make_engine: MakeEngine, max_tokens: int | None
) -> None:
    with pytest.raises(RequestError, match=r"20 tokens and 1 new .* context of 20"):
        make_engine(FakeRunner(context_length=20)).submit(
            [1] * 20, SamplingParams(max_tokens=max_tokens)
        )


def test_a_request_that_the_whole_cache_cannot_hold_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine(FakeRunner(num_pages=3))

    with pytest.raises(RequestError, match="need 4 cache pages but there are 3 of 4 tokens"):
        engine.submit([1] * 7, SamplingParams(max_tokens=7))
    fits = engine.submit([1] * 7, SamplingParams(max_tokens=6)).completion(timeout=30)
    assert len(fits.token_ids) == 6


@pytest.mark.parametrize("option", ["max_step_tokens", "max_chunk_tokens", "max_queued"])
def test_an_option_below_one_is_refused_by_name(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}=0"):
        EngineOptions(**{option: 0})
    with pytest.raises(ConfigError, match=f"{option}=True"):
        EngineOptions(**{option: True})


def test_a_queue_without_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_queued=None"):
        EngineOptions(max_queued=None)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(("option", "value"), [("max_step_tokens", 33), ("max_running", 17)])
def test_an_option_beyond_what_a_step_holds_is_refused(option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{option}={value} exceeds the {value - 1}"):
        EngineOptions(**{option: value}).limits(FakeRunner())


@pytest.mark.parametrize(("most", "kept"), [(4, 4), (20, 20), (50, 30), (-1, 30)])
def test_a_prompt_is_cut_where_asked_and_says_how_much_went(
    make_engine: MakeEngine, most: int, kept: int
) -> None:
    runner = FakeRunner()
    prompt = list(range(30))
    params = SamplingParams(temperature=0, max_tokens=3, truncate_prompt_tokens=most)
    handle = make_engine(runner).submit(prompt, params)

    assert handle.completion(timeout=30).token_ids == runner.answer(prompt[30 - kept :], 3)
    assert handle.prompt_token_ids == prompt[30 - kept :]
    assert handle.metrics is not None
    assert (handle.metrics.num_prompt_tokens, handle.metrics.num_cut_tokens) == (kept, 30 - kept)


def test_minus_one_cuts_to_what_the_context_holds_beside_the_answer(
    make_engine: MakeEngine,
) -> None:
    runner = FakeRunner(context_length=100)
    prompt = [i % 97 for i in range(300)]
    params = SamplingParams(temperature=0, max_tokens=10, truncate_prompt_tokens=-1)
    handle = make_engine(runner).submit(prompt, params)

    assert handle.completion(timeout=30).token_ids == runner.answer(prompt[-90:], 10)
    assert handle.metrics is not None
    assert handle.metrics.num_cut_tokens == 210
