"""What comes from shared pages has the bits of what is computed: whole models, all schemes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import EngineOptions
from tests.expected import load_expected
from tests.model.test_bit_equality import SCHEMES, same_bits
from tests.model.tiny_artifact import tiny_artifact

PROMPT = np.random.default_rng(8).integers(0, 331, 150).tolist()
COLD = EngineOptions(enable_prefix_caching=False, max_chunk_tokens=64)


@pytest.fixture(scope="module", params=SCHEMES)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("artifacts") / "tiny", request.param)


@pytest.fixture(scope="module")
def cold(artifact: Artifact) -> Iterator[LLM]:
    with LLM(artifact.directory, threads=1, engine=COLD) as llm:
        yield llm


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("num_known", [31, 32, 33, 64, 100, 149, 150])
def test_logits_behind_known_pages_have_the_bits_of_cold_ones(
    artifact: Artifact, cold: LLM, num_known: int, threads: int
) -> None:
    """What was known came in chunks of another size, and from another request's company."""
    tail = list(range(num_known - 1, len(PROMPT)))
    expected = cold.logits(PROMPT, tail)
    options = EngineOptions(max_chunk_tokens=7)
    with LLM(artifact.directory, threads=threads, engine=options) as llm:
        llm.logits(PROMPT[:num_known], [num_known - 1])
        before = llm.engine.stats().num_prefill_tokens
        actual = llm.logits(PROMPT, tail)
        computed = llm.engine.stats().num_prefill_tokens - before

    assert same_bits(actual, expected)
    assert computed == len(PROMPT) - (num_known - 1) // 32 * 32


def test_an_answer_s_pages_have_the_bits_of_a_prompt_s(artifact: Artifact, cold: LLM) -> None:
    """Drawn tokens were computed one by one, several in a call; a prompt's are in chunks."""
    with LLM(artifact.directory, threads=2) as llm:
        params = SamplingParams(temperature=1.0, seed=5, max_tokens=90)
        answer = llm.engine.submit(PROMPT[:20], params).completion(timeout=60).token_ids
        history = [*PROMPT[:20], *answer, 7]
        actual = llm.logits(history, [len(history) - 1])
        known = llm.engine.stats().num_cached_tokens

    assert known == 96
    assert same_bits(actual, cold.logits(history, [len(history) - 1]))


@pytest.mark.parametrize("length", [20, 32, 33, 70])
def test_choices_on_shared_pages_draw_what_each_would_alone(
    artifact: Artifact, cold: LLM, length: int
) -> None:
    params = SamplingParams(n=3, temperature=1.0, seed=9, max_tokens=40)
    prompt = {"prompt_token_ids": PROMPT[:length]}
    with LLM(artifact.directory, threads=2) as llm:
        (shared,) = llm.generate(prompt, params)
        stats = llm.engine.stats()
    alone = [
        cold.engine.submit_choices(PROMPT[:length], params)[choice].completion(timeout=60)
        for choice in range(3)
    ]

    assert stats.num_cached_tokens == 2 * (length - 1)
    assert [c.token_ids for c in shared.outputs] == [c.token_ids for c in alone]


@pytest.mark.model
@pytest.mark.parametrize("scheme", [pytest.param("fp32", marks=pytest.mark.slow), "a16w8"])
def test_the_embedded_model_gives_the_same_bits_from_known_pages(
    embedded_gguf: Path, scheme: str
) -> None:
    (prompt,) = (p.token_ids.tolist() for p in load_expected() if p.name == "digits")
    rows = list(range(len(prompt) - 20, len(prompt)))

    with LLM(embedded_gguf, weights=scheme, engine=COLD) as llm:
        expected = llm.logits(prompt, rows)
    with LLM(embedded_gguf, weights=scheme, threads=2) as llm:
        llm.logits(prompt[:-20], [len(prompt) - 21])
        actual = llm.logits(prompt, rows)
        known = llm.engine.stats().num_cached_tokens

    assert known == (len(prompt) - 20) // 32 * 32
    assert same_bits(actual, expected)
