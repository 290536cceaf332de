"""What the façade is given and cannot use is refused by name, and it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import RequestError
from tests.hub.tiny_models import write_gguf

GREEDY = SamplingParams(temperature=0, max_tokens=2)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    path = tmp_path_factory.mktemp("refusals") / "tiny.gguf"
    write_gguf(path)
    with LLM(path, weights="fp32", threads=1) as llm:
        yield llm


def _works(llm: LLM) -> bool:
    return len(llm.generate("hello", GREEDY)[0].outputs[0].token_ids) > 0


@pytest.mark.parametrize(
    "prompts",
    [
        None,
        5,
        b"hi",
        True,
        [None],
        [1, 2, 3],
        [[1, 2]],
        {},
        {1: 2, "a": 3},
        {"prompt": None},
        {"prompt_token_ids": None},
        {"prompt_token_ids": 5},
        {"prompt_token_ids": [True]},
        ["hello", None],
    ],
    ids=repr,
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError):
        llm.generate(prompts, GREEDY)
    assert _works(llm)


def test_no_prompts_have_no_outputs(llm: LLM) -> None:
    assert llm.generate([], GREEDY) == []


@pytest.mark.parametrize("params", [{"temperature": 0}, 5, "greedy", [None]], ids=repr)
def test_what_are_no_sampling_params_is_refused(llm: LLM, params: Any) -> None:
    with pytest.raises(RequestError, match="sampling_params="):
        llm.generate(["hello"], params)
    with pytest.raises(RequestError, match="sampling_params="):
        llm.chat([{"role": "user", "content": "hello"}], params)
    with pytest.raises(RequestError, match="sampling_params="):
        llm.stream("hello", params)
    assert _works(llm)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        5,
        "hello",
        ["hello"],
        {"role": "user", "content": "hello"},
        [[]],
        (message for message in [{"role": "user", "content": "hello"}]),
    ],
    ids=repr,
)
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match="messages|message 0|conversation"):
        llm.chat(messages, GREEDY)
    assert _works(llm)
