"""Mixtures of experts converted from transformers' memory, where they are stacked and renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab import LLM
from tests.model.family_cases import CASES, FamilyCase, token_ids
from tests.oracle.theirs import transformers_model
from tests.oracle.witness import relative_error, whole_logits

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.has_experts], ids=lambda case: case.name
)
def test_a_mixture_in_memory_converts_and_agrees_with_itself(
    case: FamilyCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = transformers_model(case, tmp_path / "saved")
    stacked = [name for name in theirs.state_dict() if name.endswith("experts.gate_up_proj")]
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))

    with LLM(theirs, weights="fp32") as ours:
        error = relative_error(ours.logits(token_ids()), whole_logits(theirs, token_ids()))

    assert stacked
    assert error.max() <= 1e-4
