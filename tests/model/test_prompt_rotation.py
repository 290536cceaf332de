"""A base of rotation that follows the prompt's length, as the first Qwen's does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.convert import Artifact
from tests.model.family_cases import CASES, token_ids
from tests.model.test_bit_equality import same_bits
from tests.model.test_families import converted

STRETCHED = next(case for case in CASES if case.name == "qwen, stretched")
PLAIN = replace(STRETCHED, config={**STRETCHED.config, "use_dynamic_ntk": False})
TRAINED = 60


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return converted(STRETCHED, tmp_path_factory.mktemp("stretched"), "fp32")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return converted(PLAIN, tmp_path_factory.mktemp("plain"), "fp32")


def answer(path: Path, prompt: list[int], count: int) -> list[int]:
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    with LLM(path, threads=1) as llm:
        (output,) = llm.generate([{"prompt_token_ids": prompt}], params)
    return list(output.outputs[0].token_ids)


def test_a_prompt_within_the_trained_length_turns_as_without(
    artifact: Artifact, plain: Artifact
) -> None:
    with LLM(artifact.directory, threads=1) as ours, LLM(plain.directory, threads=1) as theirs:
        for length, equal in ((TRAINED, True), (TRAINED + 1, False)):
            prompt = token_ids()[:length]
            assert same_bits(ours.logits(prompt), theirs.logits(prompt)) is equal


def test_an_answer_keeps_the_base_of_its_prompt(artifact: Artifact, plain: Artifact) -> None:
    prompt = token_ids()[:50]

    tokens = answer(artifact.directory, prompt, 40)

    assert len(prompt) + len(tokens) > TRAINED
    assert tokens == answer(plain.directory, prompt, 40)


def test_prompts_of_another_base_share_no_pages(artifact: Artifact) -> None:
    """A page holds 32 tokens; those of the short prompt begin the long ones."""
    with LLM(artifact.directory, threads=1) as fresh:
        expected = fresh.logits(token_ids())
    with LLM(artifact.directory, threads=1) as llm:
        params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        for length in (40, 100, 148):
            llm.generate([{"prompt_token_ids": token_ids()[:length]}], params)
        logits = llm.logits(token_ids())

    assert same_bits(logits, expected)


def test_requests_of_all_bases_run_beside_each_other(artifact: Artifact) -> None:
    prompts = [token_ids()[:length] for length in (30, 60, 61, 121)]
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    with LLM(artifact.directory, threads=2) as llm:
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)

    together = [list(output.outputs[0].token_ids) for output in outputs]
    assert together == [answer(artifact.directory, prompt, 12) for prompt in prompts]


def test_wanted_positions_of_a_long_text_turn_by_its_whole_length(artifact: Artifact) -> None:
    with LLM(artifact.directory, threads=1) as llm:
        whole = llm.logits(token_ids())
        some = llm.logits(token_ids(), positions=[3, 40])

    np.testing.assert_array_equal(some, whole[[3, 40]])
