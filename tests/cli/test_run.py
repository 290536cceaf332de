from __future__ import annotations

import json

import pytest

from tests.cli.conftest import FakeLLM, Shell


def test_run_streams_the_text_and_nothing_else(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("run", "smollm2-135m", "The capital of France is", "--max-tokens", "3")

    assert (ended.code, ended.out) == (0, " Paris, a\n")


def test_run_hands_every_option_on(made: list[FakeLLM], shell: Shell) -> None:
    shell(
        *("run", "some/dir", "Hi", "--temperature", "0.5", "--top-p", "0.9", "--top-k", "7"),
        *("--seed", "42", "--max-tokens", "2", "--weights", "a16w8:row", "--threads", "1"),
        *("--kv-cache-dtype", "bf16", "--context-length", "64"),
    )

    (llm,) = made
    ((prompt, params),) = llm.asked
    assert (llm.model, llm.weights, llm.threads, llm.closed) == ("some/dir", "a16w8:row", 1, True)
    assert (llm.kv_cache_dtype, llm.context_length) == ("bf16", 64)
    assert prompt == "Hi"
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 7)
    assert (params.seed, params.max_tokens) == (42, 2)


def test_run_takes_the_likeliest_token_unless_told(made: list[FakeLLM], shell: Shell) -> None:
    shell("run", "m", "Hi")

    assert made[0].asked[0][1].temperature == 0


def test_run_as_json_prints_one_object(made: list[FakeLLM], shell: Shell) -> None:
    ended = shell("run", "m", "Hi", "--max-tokens", "8", "--json")

    answer = json.loads(ended.out)
    assert ended.err == ""
    assert answer["text"] == " Paris, a city"
    assert answer["finish_reason"] == "length"
    assert (answer["prompt_tokens"], answer["completion_tokens"]) == (3, 8)
    assert answer["ttft_s"] == 0.25
    assert answer["decode_tok_s"] == pytest.approx(10)


def test_nonsense_sampling_is_refused_before_the_model_loads(
    made: list[FakeLLM], shell: Shell
) -> None:
    ended = shell("run", "m", "Hi", "--top-p", "1.5")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: top_p=1.5")
    assert made == []
