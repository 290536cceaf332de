"""Bad words, stop texts and log-probabilities on a model that has text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.outputs import CompletionOutput, RequestOutput

pytestmark = pytest.mark.model

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def llm(embedded_gguf: Path) -> Iterator[LLM]:
    with LLM(embedded_gguf, weights="a16w8") as llm:
        yield llm


def output(llm: LLM, **options: Any) -> RequestOutput:
    params = SamplingParams(**{"temperature": 0, "max_tokens": 12, **options})
    return llm.generate(PROMPT, params)[0]


def answer(llm: LLM, **options: Any) -> CompletionOutput:
    return output(llm, **options).outputs[0]


def test_a_bad_word_is_not_written(llm: LLM) -> None:
    free, kept = answer(llm), answer(llm, bad_words=["Paris"])

    assert "Paris" in free.text
    assert "Paris" not in kept.text


@pytest.mark.parametrize("stop", ["Paris", "aris", " Par", "is."])
def test_a_stop_text_inside_tokens_leaves_nothing_of_itself(llm: LLM, stop: str) -> None:
    free = answer(llm).text
    assert stop in free

    stopped = answer(llm, stop=["never said", stop])

    assert stopped.text == free[: free.index(stop)]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
    shown = answer(llm, stop=stop, include_stop_str_in_output=True).text
    assert shown == free[: free.index(stop) + len(stop)]


def test_streamed_text_is_the_whole_text_with_every_option(llm: LLM) -> None:
    params = SamplingParams(
        seed=5, max_tokens=40, stop=["the"], min_tokens=20, repetition_penalty=1.2, min_p=0.05
    )

    streamed = "".join(llm.stream(PROMPT, params))

    assert streamed == llm.generate(PROMPT, params)[0].outputs[0].text


def test_logprobs_name_their_tokens(llm: LLM) -> None:
    found = output(llm, max_tokens=1, logprobs=2, prompt_logprobs=0)
    (drawn,) = found.outputs[0].token_ids

    assert found.outputs[0].logprobs is not None
    assert found.outputs[0].logprobs[0][drawn].decoded_token == " Paris"
    assert found.outputs[0].logprobs[0][drawn].rank == 1
    rated = found.prompt_logprobs
    assert rated is not None
    texts = [
        entry[token_id].decoded_token
        for entry, token_id in zip(rated, found.prompt_token_ids, strict=True)
        if entry is not None
    ]
    assert "".join(text or "" for text in texts) == " capital of France is"


def test_ids_of_a_bias_move_the_text(llm: LLM) -> None:
    assert llm.tokenizer is not None
    (london,) = llm.tokenizer.encode_plain(" London")

    assert answer(llm, logit_bias={london: 30.0}, max_tokens=1).text == " London"
    assert answer(llm, allowed_token_ids=[london], max_tokens=2).text == " London London"
