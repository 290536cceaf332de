"""Every family against what transformers computed from the same tiny checkpoint, without torch."""

from __future__ import annotations

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

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def converted(case: FamilyCase, directory: Path, scheme: str) -> Artifact:
    with SafetensorsCheckpoint(case.write(directory / "checkpoint")) as checkpoint:
        return convert(checkpoint, directory / "converted", scheme)


# fp32 agrees to 1e-4 of a row's largest. 8-bit weights move random logits by 3e-2 at most, a wrong
# layout or angle by 0.5 and more.
@each_case
@pytest.mark.parametrize(("scheme", "tolerance"), [("fp32", 1e-4), ("a16w8:32", 0.06)])
def test_logits_are_those_of_transformers(
    tmp_path: Path, case: FamilyCase, scheme: str, tolerance: float
) -> None:
    with LLM(converted(case, tmp_path, scheme).directory, threads=2) as llm:
        logits = llm.logits(token_ids())

    expected = load_family(case.name)
    assert expected.error(logits).max() <= tolerance
    if scheme == "fp32":
        np.testing.assert_array_equal(logits.argmax(axis=1), expected.argmax)


@each_case
@pytest.mark.parametrize("scheme", ["fp32", "a16w8", "a16w4"])
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
