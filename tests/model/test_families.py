"""Every family against what transformers computed from the same tiny checkpoint, without torch."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import Artifact, convert
from dashinfer_lab.hub import SafetensorsCheckpoint
from tests.expected.families import load_family
from tests.model.family_cases import CASES, FamilyCase, token_ids
from tests.model.test_bit_equality import (
    PROMPT,
    prefill,
    running,
    same_bits,
    seven_others,
)

EVERY_SCHEME = ("qwen2", "qwen3")
"""Cases tried in every scheme by the quick suite; quantised forms of the others are slow tests."""
IN_COMPANY = (*EVERY_SCHEME, "gemma2", "chatglm", "baichuan 2, 13B", "mixtral")
"""Cases whose bits the quick suite compares in company; those of the others are slow tests."""
_ALL = tuple(case.name for case in CASES)

# fp32 agrees to 1e-4 of a row's largest. 8-bit weights move random logits by 3e-2 at most, a wrong
# layout or angle by 0.5 and more.
TOLERANCES = {"fp32": 1e-4, "a16w8:32": 0.06}


def each_case_in(*schemes: str, quick_in_fp32: Collection[str] = _ALL) -> pytest.MarkDecorator:
    """Every case in every scheme; those named are quick in fp32."""

    def marks(case: FamilyCase, scheme: str) -> list[pytest.MarkDecorator]:
        quick = quick_in_fp32 if scheme == "fp32" else EVERY_SCHEME
        return [] if case.name in quick else [pytest.mark.slow]

    return pytest.mark.parametrize(
        ("case", "scheme"),
        [
            pytest.param(case, scheme, id=f"{case.name}-{scheme}", marks=marks(case, scheme))
            for case in CASES
            for scheme in schemes
        ],
    )


def converted(case: FamilyCase, directory: Path, scheme: str) -> Artifact:
    with SafetensorsCheckpoint(case.write(directory / "checkpoint")) as checkpoint:
        return convert(checkpoint, directory / "converted", scheme)


@each_case_in("fp32", "a16w8:32")
def test_logits_are_those_of_transformers(tmp_path: Path, case: FamilyCase, scheme: str) -> None:
    with LLM(converted(case, tmp_path, scheme).directory, threads=2) as llm:
        logits = llm.logits(token_ids())

    expected = load_family(case.name)
    errors = expected.error(logits)
    # Where two experts are nearly as good, 8 bits may choose the other.
    chosen_otherwise = 0.05 if case.has_experts and scheme != "fp32" else 0
    assert np.quantile(errors, 1 - chosen_otherwise) <= TOLERANCES[scheme]
    if scheme == "fp32":
        np.testing.assert_array_equal(logits.argmax(axis=1), expected.argmax)


@each_case_in("fp32", "a16w8", "a16w4", quick_in_fp32=IN_COMPANY)
def test_chunks_threads_company_and_old_pages_do_not_change_a_bit(
    tmp_path: Path, case: FamilyCase, scheme: str
) -> None:
    artifact = converted(case, tmp_path, scheme)
    with running(artifact, threads=1) as runner:
        alone = prefill(runner, 50)

    with running(artifact, threads=3, chaos_seed=2) as runner:
        runner.cache.view(np.uint8)[:] = 0xFF
        for chunk in (1, 7, 50):
            assert same_bits(prefill(runner, chunk, seven_others()), alone)

    assert len(alone) == len(PROMPT)
