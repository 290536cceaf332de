"""The numerics contract on whole models: the same bits whatever the company, chunks and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab import LLM
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import Chunk, EngineOptions
from dashinfer_lab.engine.loading import LoadOptions, load_runner
from dashinfer_lab.engine.runner import CompiledRunner
from dashinfer_lab.sampling import SamplingState
from tests.expected import load_expected
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

SCHEMES = (
    "fp32", "bf16", "a16w8", "a16w8:row", "a16w4", "a16w4:512",
    *(pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("a8w8", "a8w4")),
)  # fmt: skip
PROMPT = np.random.default_rng(5).integers(0, 331, 150).tolist()
TARGET_PAGES = (11, 3, 8, 0, 14)
"""Out of order, so that a page table is needed to find anything."""

Logits = NDArray[np.float32]


@pytest.fixture(scope="module", params=SCHEMES)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    directory = tmp_path_factory.mktemp("artifacts") / "tiny"
    return tiny_artifact(directory, request.param)


@contextmanager
def running(
    artifact: Artifact, threads: int = 2, chaos_seed: int | None = None
) -> Iterator[CompiledRunner]:
    options = LoadOptions(
        threads, max_batch_tokens=200, kv_cache_bytes=2**21, chaos_seed=chaos_seed,
        kv_cache_dtype="fp32",
    )  # fmt: skip
    runner = load_runner(artifact, options).runner
    try:
        yield runner
    finally:
        runner.close()


def target(start: int, stop: int) -> Chunk:
    return Chunk(0, PROMPT[start:stop], start, TARGET_PAGES, "all", None)


def prefill(runner: CompiledRunner, chunk: int, company: Sequence[Chunk] = ()) -> Logits:
    """Logits of the prompt, `chunk` tokens a step, each step with `company` around it."""
    half = len(company) // 2
    rows: list[Logits] = []
    for start in range(0, len(PROMPT), chunk):
        mine = target(start, min(start + chunk, len(PROMPT)))
        results = runner.step([*company[:half], mine, *company[half:]])
        logits = results[half].logits
        assert logits is not None
        rows.append(logits)
    return np.concatenate(rows)


def seven_others() -> list[Chunk]:
    """Prompts being prefilled and answers being decoded, greedy and sampled."""
    random = np.random.default_rng(6)
    drawn = SamplingState(0.8, 20, 0.9, seed=3, choice=0, position=9, num_logprobs=None)
    shapes = [(1, 0), (9, 0), (1, 40), (3, 30), (1, 70), (1, 2), (6, 10)]
    return [
        Chunk(
            1 + i,
            random.integers(0, 331, length).tolist(),
            start,
            range(16 + 3 * i, 19 + 3 * i),
            "last",
            drawn if i % 2 else None,
        )
        for i, (length, start) in enumerate(shapes)
    ]


@pytest.fixture(scope="module")
def alone(artifact: Artifact) -> Logits:
    """One thread, one request, 50 tokens a step."""
    with running(artifact, threads=1) as runner:
        return prefill(runner, 50)


def same_bits(actual: Logits, expected: Logits) -> bool:
    return bool(np.array_equal(actual.view(np.uint32), expected.view(np.uint32)))


@pytest.mark.parametrize("chunk", [1, 7, 13, 64])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_chunks_and_threads_do_not_change_a_bit(
    artifact: Artifact, alone: Logits, chunk: int, threads: int
) -> None:
    with running(artifact, threads) as runner:
        assert same_bits(prefill(runner, chunk), alone)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("first", [65, 100])
def test_rows_that_are_multiplied_in_strips_have_the_same_bits(
    artifact: Artifact, alone: Logits, first: int, threads: int
) -> None:
    with running(artifact, threads) as runner:
        runner.step([replace(target(0, first), logit_rows="none")])
        (result,) = runner.step([target(first, first + 50)])

    assert same_bits(result.logits, alone[first : first + 50])


@pytest.mark.parametrize(
    "scheme",
    [
        "fp32", "a16w8",
        *(pytest.param(it, marks=pytest.mark.slow) for it in ("bf16", "a16w4", "a8w8", "a8w4")),
    ],
)  # fmt: skip
def test_who_computes_a_gated_unit_does_not_change_a_bit(tmp_path: Path, scheme: str) -> None:
    config = tiny_llama(intermediate_size=192)  # whole panels, so that one product makes both parts
    artifact = tiny_artifact(tmp_path / "tiny", scheme, config)
    with running(artifact) as runner:
        by_product = [op for op in runner.plan.ops if op.constants.get("gated") == "swiglu"]
        assert len(by_product) == config.num_layers
        few = prefill(runner, 40)
        runner.step([replace(target(0, 100), logit_rows="none")])
        (many,) = runner.step([target(100, 150)])
    assert many.logits is not None
    assert same_bits(many.logits, few[100:])


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_seven_other_requests_do_not_change_a_bit(
    artifact: Artifact, alone: Logits, chunk: int
) -> None:
    with running(artifact) as runner:
        assert same_bits(prefill(runner, chunk, seven_others()), alone)


@pytest.mark.parametrize("chaos_seed", [None, 11])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_several_tokens_in_one_call_are_those_of_as_many_calls(
    artifact: Artifact, threads: int, chaos_seed: int | None
) -> None:
    """Rows that cross a page and a segment, greedy and drawn."""
    drawn = SamplingState(0.8, 20, 0.9, seed=3, choice=0, position=0, num_logprobs=None)

    def decodes(tokens: Sequence[int], ahead: int) -> list[Chunk]:
        return [
            Chunk(
                row,
                [token],
                start + ahead,
                range(10 * row, 10 * row + 10),
                "last",
                replace(drawn, temperature=0.8 * row, position=start + ahead + 1),
                decoding=True,
            )
            for row, (token, start) in enumerate(zip(tokens, (250, 29), strict=True))
        ]

    with running(artifact, threads, chaos_seed) as runner:
        tokens, one_by_one = [5, 9], []
        for ahead in range(12):
            tokens = [result.token_id for result in runner.step(decodes(tokens, ahead))]
            one_by_one.append(tokens)
        walks, calls = [[5, 9]], 0
        while len(walks) <= 12:
            results = runner.walk(decodes(walks[-1], len(walks) - 1), 13 - len(walks))
            walks += [[result.token_id for result in walk] for walk in results]
            calls += 1

    assert walks[1:] == one_by_one
    assert calls == (1 if threads == 1 else 2)  # split rows stop at a segment's end


@pytest.mark.parametrize("chunk", [7, 50])
def test_what_pages_held_before_does_not_change_a_bit(
    artifact: Artifact, alone: Logits, chunk: int
) -> None:
    with running(artifact) as runner:
        runner.cache.view(np.uint8)[:] = 0xFF

        assert same_bits(prefill(runner, chunk, seven_others()[:1]), alone)


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_workers_that_straggle_do_not_change_a_bit(
    artifact: Artifact, alone: Logits, chunk: int
) -> None:
    with running(artifact, threads=3, chaos_seed=chunk) as runner:
        assert same_bits(prefill(runner, chunk), alone)


def test_nan_in_one_request_ends_that_request_only(artifact: Artifact, alone: Logits) -> None:
    others = seven_others()
    with running(artifact) as runner:
        runner.cache.view(np.float32)[:, others[2].page_table[0]] = np.nan

        results = runner.step([*others, target(0, 50)])

    finite = [result.finite for result in results]
    assert finite == [True, True, False, True, True, True, True, True]
    logits = results[-1].logits
    assert logits is not None
    assert same_bits(logits, alone[:50])


def test_draws_do_not_depend_on_company(artifact: Artifact) -> None:
    others = [chunk for chunk in seven_others() if chunk.sampling is not None]
    with running(artifact, threads=1) as runner:
        singly = [runner.step([chunk])[0].token_id for chunk in others]
    with running(artifact) as runner:
        together = [result.token_id for result in runner.step(others)]

    assert together == singly


@pytest.mark.model
@pytest.mark.parametrize(
    "scheme",
    ["a16w8", *(pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("fp32", "a16w4"))],
)
def test_the_embedded_model_gives_the_same_bits(embedded_gguf: Path, scheme: str) -> None:
    (prompt,) = (p.token_ids.tolist() for p in load_expected() if p.name == "digits")

    with LLM(embedded_gguf, weights=scheme, threads=1) as llm:
        expected = llm.logits(prompt)
    small_chunks = EngineOptions(max_chunk_tokens=7)
    with LLM(embedded_gguf, weights=scheme, threads=2, engine=small_chunks) as llm:
        handles = [llm.engine.submit(prompt[i:], block=True) for i in range(7)]
        actual = llm.logits(prompt)
        for handle in handles:
            handle.cancel()

    assert same_bits(actual, expected)
