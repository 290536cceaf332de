"""Whole answers against a replay in NumPy: each draw from its logits and the history read anew."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import Engine
from dashinfer_lab.engine.loading import LoadOptions, load_runner
from dashinfer_lab.errors import RequestError, SamplingError
from dashinfer_lab.outputs import CompletionOutput
from dashinfer_lab.sampling import MAX_LOGPROBS
from jit_kernels.kernels.sample_top import TOP_LOGITS
from jit_kernels.reference import sample as reference
from tests.model.tiny_artifact import tiny_artifact

PROMPT = np.random.default_rng(5).integers(0, 331, 40).tolist()
INF = float("inf")
Logits = NDArray[np.float32]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sampling") / "tiny"
    tiny_artifact(directory, "fp32")
    return directory


@pytest.fixture(scope="module")
def llm(directory: Path) -> Iterator[LLM]:
    with LLM(directory, threads=2) as llm:
        yield llm


def generate(llm: LLM, prompts: Sequence[list[int]], *params: SamplingParams) -> list[Any]:
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    return llm.generate(given, params[0] if len(params) == 1 else list(params))


def answer(llm: LLM, params: SamplingParams, prompt: list[int] = PROMPT) -> CompletionOutput:
    return generate(llm, [prompt], params)[0].outputs[0]


def replay(llm: LLM, params: SamplingParams, choice: int = 0) -> list[int]:
    """What a request must draw, each token from scratch; greedy runs of 30 ids have no eos."""
    output: list[int] = []
    while len(output) < (params.max_tokens or 0):
        history = [*PROMPT, *output]
        x = llm.logits(history, [len(history) - 1])[0]
        request = reference.Request(
            float(params.temperature), params.top_k, params.top_p, params.seed or 0, choice,
            len(history), params.min_p, tuple(params.allowed_token_ids or ()),
            tuple(biases(params, output)), counts(params, output),
            params.repetition_penalty, params.presence_penalty, params.frequency_penalty,
        )  # fmt: skip
        output.append(reference.sample(x, request)[0])
    return output


def biases(params: SamplingParams, output: list[int]) -> Iterator[tuple[int, float]]:
    yield from (params.logit_bias or {}).items()
    for word in params.bad_words_ids or ():
        if len(word) == 1 or tuple(output[-len(word) + 1 :]) == tuple(word[:-1]):
            yield word[-1], -INF
    if len(output) < params.min_tokens:
        yield from ((token_id, -INF) for token_id in params.stop_token_ids or ())
    size, history = params.no_repeat_ngram_size, [*PROMPT, *output]
    for begin in range(len(history) - size + 1 if size else 0):
        run = history[begin : begin + size]
        if run[:-1] == history[len(history) - size + 1 :]:
            yield run[-1], -INF


def counts(params: SamplingParams, output: list[int]) -> dict[int, int]:
    drawn = Counter(output)
    seen = {*PROMPT, *output} if params.repetition_penalty != 1 else set(output)
    penalised = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
    return {} if penalised == (1, 0, 0) else {token_id: drawn[token_id] for token_id in seen}


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"seed": 3},
    "filters": {"seed": 4, "temperature": 1.7, "top_k": 90, "top_p": 0.9, "min_p": 0.01},
    "repetition": {"temperature": 0, "repetition_penalty": 1.4},
    "presence and frequency": {
        "seed": 5, "presence_penalty": 1.5, "frequency_penalty": 0.5, "top_k": 20,
    },
    "biases": {"temperature": 0, "logit_bias": {7: 3.5, 8: -60.0, 9: 2.0}},
    "allowed": {"seed": 6, "allowed_token_ids": [3, 99, 330, 7, 150], "min_p": 0.001},
    "no run twice": {"temperature": 0, "no_repeat_ngram_size": 2, "logit_bias": {1: 9.0, 2: 9.0}},
    "everything": {
        "seed": 7, "temperature": 1.3, "top_k": 60, "top_p": 0.95, "min_p": 0.002,
        "repetition_penalty": 0.8, "presence_penalty": -0.5, "frequency_penalty": 0.3,
        "logit_bias": {11: 4.0, 12: -4.0}, "allowed_token_ids": list(range(0, 331, 2)),
        "bad_words_ids": [[4], [6, 8]], "stop_token_ids": [10, 20], "min_tokens": 30,
        "no_repeat_ngram_size": 3,
    },
}  # fmt: skip


def params_of(name: str) -> SamplingParams:
    return SamplingParams(max_tokens=30, **OPTIONS[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_an_answer_is_what_the_replay_draws(llm: LLM, name: str) -> None:
    params = params_of(name)

    assert answer(llm, params).token_ids == replay(llm, params)


@pytest.mark.parametrize("threads", [1, 3])
def test_company_and_threads_change_no_token(llm: LLM, directory: Path, threads: int) -> None:
    params = [params_of(name) for name in OPTIONS]
    alone = [answer(llm, each).token_ids for each in params]

    with LLM(directory, threads=threads) as other:
        together = generate(other, [PROMPT] * len(params), *params)
        backwards = generate(other, [PROMPT] * len(params), *params[::-1])

    assert [output.outputs[0].token_ids for output in together] == alone
    assert [output.outputs[0].token_ids for output in backwards] == alone[::-1]


def test_a_request_that_loses_its_pages_draws_the_same(llm: LLM, directory: Path) -> None:
    params = [replace(params_of(name), max_tokens=80) for name in OPTIONS]
    expected = [answer(llm, each).token_ids for each in params]

    # Six pages of 16 KiB; each request begins with two and grows to four.
    num_preemptions = 0
    with LLM(directory, threads=2, kv_cache_bytes=6 * 2**14) as small:
        small.engine.subscribe(lambda _: None)  # a token a call: none ends before others begin
        for _ in range(5):
            outputs = generate(small, [PROMPT] * len(params), *params)
            assert [output.outputs[0].token_ids for output in outputs] == expected
            num_preemptions += sum(output.metrics.num_preemptions for output in outputs)

    assert num_preemptions > 0


def test_a_bad_word_of_several_ids_is_never_completed(llm: LLM) -> None:
    free = answer(llm, SamplingParams(temperature=0, max_tokens=12)).token_ids
    word = free[4:7]

    kept = answer(llm, SamplingParams(temperature=0, max_tokens=12, bad_words_ids=[word]))

    assert kept.token_ids[:6] == free[:6]
    assert kept.token_ids[6] != free[6]


def test_min_tokens_keeps_a_stop_id_away_and_then_lets_it_come(llm: LLM) -> None:
    bias = {5: 50.0}
    params = SamplingParams(temperature=0, logit_bias=bias, stop_token_ids=[5], min_tokens=4)

    output = answer(llm, params)

    assert len(output.token_ids) == 5
    assert output.token_ids[:4].count(5) == 0
    assert (output.finish_reason, output.stop_reason) == ("stop", 5)


def test_choices_differ_and_come_again_as_a_set(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=1, max_tokens=12)

    (output,) = generate(llm, [PROMPT], params)

    for choice in output.outputs:
        assert choice.token_ids == replay(llm, params, choice.index)
    assert len({tuple(choice.token_ids) for choice in output.outputs}) == 3


def test_without_a_seed_two_models_differ(llm: LLM, directory: Path) -> None:
    with LLM(directory, threads=1) as other:
        assert answer(llm, SamplingParams()).token_ids != answer(other, SamplingParams()).token_ids


def rated(row: Logits, token_id: int, count: int) -> dict[int, tuple[float, int]]:
    """Log-probability and rank of the likeliest and of a token, in float64."""
    exact = row.astype(np.float64)
    logprobs = exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())
    ids = [*reference.top(row, count), token_id]
    return {i: (float(logprobs[i]), reference.rank(row, i)) for i in ids}


def check_rated(found: Any, row: Logits, token_id: int, count: int) -> None:
    expected = rated(row, token_id, count)
    assert list(found) == list(expected)
    for i, (logprob, rank) in expected.items():
        # The sum of 331 terms errs by 21 additions a lane and 4 folds of 2^-24, exp by 2e-7 a
        # term, log and the last two subtractions by 2 ulp of at most 16.
        assert found[i].logprob == pytest.approx(logprob, abs=25 * 2.0**-24 + 2e-7 + 4e-6)
        assert found[i].rank == rank


@pytest.mark.parametrize("count", [0, 1, 5, 20])
@pytest.mark.parametrize("name", ["greedy", "filters", "everything"])
def test_logprobs_are_those_of_the_logits_as_the_model_made_them(
    llm: LLM, name: str, count: int
) -> None:
    params = SamplingParams(max_tokens=6, logprobs=count, **OPTIONS[name] | {"min_tokens": 6})

    output = answer(llm, params)

    logits = llm.logits([*PROMPT, *output.token_ids])
    assert output.logprobs is not None
    for place, (token_id, found) in enumerate(zip(output.token_ids, output.logprobs, strict=True)):
        check_rated(found, logits[len(PROMPT) - 1 + place], token_id, count)
    total = sum(each[i].logprob for i, each in zip(output.token_ids, output.logprobs, strict=True))
    assert output.cumulative_logprob == total


@pytest.mark.parametrize("count", [0, 3])
def test_prompt_logprobs_rate_every_token_but_the_first(llm: LLM, count: int) -> None:
    prompt = PROMPT * 3  # more rows than a step has
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=count)

    (output,) = generate(llm, [prompt], params)

    logits = llm.logits(prompt)
    assert output.prompt_logprobs[0] is None
    assert len(output.prompt_logprobs) == len(prompt)
    for place, found in enumerate(output.prompt_logprobs[1:]):
        check_rated(found, logits[place], prompt[place + 1], count)
    assert output.outputs[0] == answer(llm, SamplingParams(temperature=0, max_tokens=2), prompt)


def test_logprobs_of_the_least_likely_are_finite_and_go_into_json(llm: LLM) -> None:
    row = llm.logits(PROMPT)[-1]
    least = [int(token_id) for token_id in np.argsort(row)[:2]]
    params = SamplingParams(max_tokens=3, logprobs=2, allowed_token_ids=least)

    found = answer(llm, params).logprobs
    assert found is not None
    text = json.dumps(
        [{i: each.logprob for i, each in it.items()} for it in found], allow_nan=False
    )
    assert len(json.loads(text)) == 3


def test_as_many_logprobs_may_be_asked_for_as_the_kernel_finds() -> None:
    assert MAX_LOGPROBS == TOP_LOGITS


def test_a_request_without_a_token_left_ends_alone(llm: LLM) -> None:
    blocked = SamplingParams(allowed_token_ids=[3], bad_words_ids=[[3]], max_tokens=4)
    greedy = SamplingParams(temperature=0, max_tokens=4)

    outputs = [output.outputs[0] for output in generate(llm, [PROMPT] * 2, blocked, greedy)]

    assert outputs[0].finish_reason == "error"
    assert isinstance(outputs[0].error, SamplingError)
    assert "no token may be drawn" in str(outputs[0].error)
    assert outputs[1].token_ids == answer(llm, greedy).token_ids


def test_an_id_beyond_the_vocabulary_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="logit_bias names .331., but .* 0..330"):
        answer(llm, SamplingParams(logit_bias={331: 1.0}))


@pytest.mark.parametrize("temperature", [0.0, 50.0])
def test_ids_the_tokenizer_does_not_know_are_never_drawn(
    llm: LLM, directory: Path, temperature: float
) -> None:
    params = SamplingParams(temperature=temperature, seed=2, max_tokens=30, logprobs=20)
    runner = load_runner(Artifact.open(directory), LoadOptions(threads=1)).runner
    with Engine(runner, num_ids=18) as engine:
        handle = engine.submit(PROMPT, replace(params, prompt_logprobs=20))
        output = handle.completion(timeout=60)

    logits = llm.logits([*PROMPT, *output.token_ids])[:, :18]
    for place, token_id in enumerate(output.token_ids):
        row = logits[len(PROMPT) - 1 + place]
        request = reference.Request(temperature, seed=2, position=len(PROMPT) + place)
        assert token_id == reference.sample(row, request)[0]
        assert output.logprobs is not None
        check_rated(output.logprobs[place], row, token_id, 18)
    assert handle.prompt_logprobs is not None
    assert all(set(found) >= set(range(18)) for found in handle.prompt_logprobs[1:] if found)


def only(ids: Sequence[int]) -> Callable[[list[int], Logits], Logits]:
    def keep(output: list[int], logits: Logits) -> Logits:
        del output
        kept = np.full_like(logits, -np.inf)
        kept[list(ids)] = logits[list(ids)]
        return kept

    return keep


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_function_that_keeps_some_ids_draws_as_allowed_ids_do(
    llm: LLM, temperature: float
) -> None:
    ids = [3, 99, 330, 7, 150]
    options: dict[str, Any] = {
        "temperature": temperature, "seed": 8, "max_tokens": 10, "repetition_penalty": 1.2,
        "logprobs": 2,
    }  # fmt: skip

    allowed = answer(llm, SamplingParams(allowed_token_ids=ids, **options))
    processed = answer(llm, SamplingParams(logits_processors=[only(ids)], **options))

    assert processed == allowed


def test_that_functions_are_slow_is_said_once(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = SamplingParams(max_tokens=3, logits_processors=[only([1, 2])])
    with LLM(directory, threads=1) as llm, caplog.at_level(logging.WARNING):
        answer(llm, params)
        answer(llm, params)

    (said,) = [record.message for record in caplog.records if "busy" not in record.message]
    assert said.startswith("a request has logits_processors: ")


def test_a_function_may_ask_for_prompt_and_output(llm: LLM) -> None:
    seen: list[tuple[list[int], list[int]]] = []

    def look(prompt: list[int], output: list[int], logits: Logits) -> Logits:
        seen.append((prompt, list(output)))
        output.clear()  # its own copy
        return logits

    output = answer(llm, SamplingParams(temperature=0, max_tokens=3, logits_processors=[look]))

    assert output.token_ids == answer(llm, SamplingParams(temperature=0, max_tokens=3)).token_ids
    assert seen == [(PROMPT, output.token_ids[:count]) for count in range(3)]


def raising(output: list[int], logits: Logits) -> Logits:
    if len(output) == 2:
        raise ZeroDivisionError("a fault of its own")
    return logits


def exiting(output: list[int], logits: Logits) -> Logits:
    if len(output) == 2:
        sys.exit("as an interrupted notebook may")
    return logits


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raising, "a fault of its own"),
        (exiting, "SystemExit"),
        (lambda output, logits: None, "returned shape"),
        (lambda output, logits: logits[:5], "returned shape"),
        (lambda output, logits: logits * np.nan, "returned NaN"),
        (lambda output, logits: logits - np.inf, "no token may be drawn"),
    ],
    ids=["raises", "exits", "returns nothing", "returns too few", "returns nan", "excludes all"],
)
def test_a_function_that_fails_ends_its_request_only(
    llm: LLM, function: Callable[..., Any], reason: str
) -> None:
    greedy = SamplingParams(temperature=0, max_tokens=5)
    failing = SamplingParams(temperature=0, max_tokens=5, logits_processors=[function])

    outputs = [output.outputs[0] for output in generate(llm, [PROMPT] * 2, failing, greedy)]

    assert outputs[0].finish_reason == "error"
    assert isinstance(outputs[0].error, SamplingError)
    assert reason in str(outputs[0].error)
    drawn = outputs[1].token_ids[:2] if function in (raising, exiting) else []
    assert outputs[0].token_ids == drawn
    assert outputs[1] == answer(llm, greedy)
