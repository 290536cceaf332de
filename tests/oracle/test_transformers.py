"""The embedded model in fp32, every logit of every prompt, against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab import LLM
from dashinfer_lab.hub import open_checkpoint
from tests.expected import ExpectedPrompt, load_expected
from tests.oracle.gguf_llama import (
    GgufLlama,
    read_gguf_llama,
    tokenizer_of,
    transformers_llama,
)
from tests.oracle.witness import choices, relative_error, whole_logits

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

# One pass of 538 tokens takes a minute where other work shares the cores.
pytestmark = [pytest.mark.oracle, pytest.mark.model, pytest.mark.timeout(600)]

PROMPTS = load_expected()
each_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


@pytest.fixture(scope="module")
def gguf_llama(embedded_gguf: Path) -> GgufLlama:
    return read_gguf_llama(embedded_gguf)


@pytest.fixture(scope="module")
def theirs(gguf_llama: GgufLlama) -> LlamaForCausalLM:
    return transformers_llama(gguf_llama)


@pytest.fixture(scope="module")
def their_logits(theirs: LlamaForCausalLM) -> dict[str, NDArray[np.float32]]:
    """Of each prompt and the answer after it, but for the answer's last token."""
    return {prompt.name: whole_logits(theirs, _sequence(prompt)) for prompt in PROMPTS}


@pytest.fixture(scope="module")
def ours(embedded_gguf: Path) -> Iterator[LLM]:
    with LLM(str(embedded_gguf), weights="fp32") as llm:
        yield llm


@each_prompt
def test_logits_agree_at_every_position(
    ours: LLM, their_logits: dict[str, NDArray[np.float32]], prompt: ExpectedPrompt
) -> None:
    logits = ours.logits(_sequence(prompt))

    assert relative_error(logits, their_logits[prompt.name]).max() <= 1e-4


@each_prompt
def test_committed_values_are_what_transformers_computes(
    their_logits: dict[str, NDArray[np.float32]], prompt: ExpectedPrompt
) -> None:
    length = len(prompt.token_ids)
    rows = their_logits[prompt.name]

    # Machines differ in the order of torch's sums; its two attentions differ by 3e-6.
    assert prompt.error(rows[:length]).max() <= 1e-5
    chosen, margin = choices(rows[length - 1 :])
    assert chosen == prompt.greedy.tolist()
    # Twice the tolerance of the logits, so that an engine within it must choose the same.
    assert margin >= 2e-4


def test_prompts_encode_to_the_committed_ids(embedded_gguf: Path) -> None:
    tokenizer = tokenizer_of(embedded_gguf)

    ids = {prompt.name: tokenizer.encode(prompt.text).ids for prompt in PROMPTS}

    assert ids == {prompt.name: prompt.token_ids.tolist() for prompt in PROMPTS}


def test_our_gguf_reader_gives_the_weights_of_the_independent_one(
    embedded_gguf: Path, gguf_llama: GgufLlama
) -> None:
    checkpoint = open_checkpoint(embedded_gguf)
    try:
        assert set(checkpoint.names()) == set(gguf_llama.tensors)
        for name, expected in gguf_llama.tensors.items():
            np.testing.assert_array_equal(checkpoint.read(name), expected, err_msg=name)
    finally:
        checkpoint.close()


def test_transformers_own_gguf_loader_gives_the_same_weights(
    embedded_gguf: Path, theirs: LlamaForCausalLM
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    other = AutoModelForCausalLM.from_pretrained(
        str(embedded_gguf.parent), gguf_file=embedded_gguf.name, dtype=torch.float32
    )

    expected = theirs.state_dict()
    actual = other.state_dict()
    assert set(actual) == set(expected)
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())


def _sequence(prompt: ExpectedPrompt) -> list[int]:
    return [*prompt.token_ids.tolist(), *prompt.greedy[:-1].tolist()]
