"""The embedded model in fp32 against what transformers computed (`tests/expected`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.tokenizer import Tokenizer
from tests.expected import ExpectedPrompt, load_expected
from tests.model.artifact_weights import ArtifactWeights
from tests.model.numpy_llama import llama_logits

pytestmark = pytest.mark.model

PROMPTS = load_expected()
each_prompt = pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.name)


@pytest.fixture(scope="module")
def llm(embedded_gguf: Path) -> Iterator[LLM]:
    with LLM(embedded_gguf, weights="fp32") as llm:
        yield llm


@each_prompt
def test_logits_are_those_of_transformers(llm: LLM, prompt: ExpectedPrompt) -> None:
    logits = llm.logits(prompt.token_ids.tolist())

    assert logits.dtype == np.float32
    assert logits.shape[0] == len(prompt.token_ids)
    # Two fp32 evaluations of this model (torch's two attentions, NumPy) differ by 5e-6.
    assert prompt.error(logits).max() <= 1e-4


def test_48_greedy_tokens_are_those_of_transformers(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)

    outputs = llm.generate([{"prompt_token_ids": p.token_ids.tolist()} for p in PROMPTS], params)

    actual = {p.name: list(o.outputs[0].token_ids) for p, o in zip(PROMPTS, outputs, strict=True)}
    assert actual == {p.name: p.greedy.tolist() for p in PROMPTS}


@each_prompt
def test_prompts_encode_to_the_ids_transformers_was_given(llm: LLM, prompt: ExpectedPrompt) -> None:
    tokenizer = Tokenizer.load(llm.artifact.directory)

    ids = tokenizer.encode(prompt.text)

    assert ids == prompt.token_ids.tolist()
    assert tokenizer.decode(ids) == prompt.text


@pytest.mark.parametrize("name", ["english", "digits", "unicode", "code"])
def test_the_numpy_llama_on_converted_weights_agrees_with_transformers(llm: LLM, name: str) -> None:
    (prompt,) = (p for p in PROMPTS if p.name == name)

    logits = llama_logits(llm.config, ArtifactWeights(llm.artifact), prompt.token_ids.tolist())

    # fp32 against float64 measures 5e-6 of the row's largest for either side.
    assert prompt.error(logits).max() <= 1e-5
