"""What 16-bit activations cost, against fp32 arithmetic on the same, dequantised weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from tests.expected import load_expected
from tests.model.artifact_weights import ArtifactWeights
from tests.model.numpy_llama import llama_logits

pytestmark = pytest.mark.model

_NAMES = ("unicode", "code")


@pytest.mark.parametrize("scheme", ["a16w8", pytest.param("a16w4", marks=pytest.mark.slow)])
def test_integer_activations_move_logits_by_less_than_a_thousandth(
    embedded_gguf: Path, scheme: str
) -> None:
    prompts = [p.token_ids.tolist() for p in load_expected() if p.name in _NAMES]

    with LLM(embedded_gguf, weights=scheme, kv_cache_dtype="fp32") as llm:
        logits = np.concatenate([llm.logits(p) for p in prompts])
        weights = ArtifactWeights(llm.artifact)
        reference = np.concatenate([llama_logits(llm.config, weights, p) for p in prompts])

    # Rounding to int16 relative to the largest of 64 activations, emulated in NumPy, measures
    # 4.5e-4 at worst and 1.7e-4 in the median; rows are relative to their largest logit.
    largest = np.abs(reference).max(axis=1)
    errors = np.abs(logits - reference).max(axis=1) / largest
    assert errors.max() <= 1e-3
    assert np.median(errors) <= 3e-4
    # Exactly fp32 activations would measure 5e-6: then the integer path did not run.
    assert np.median(errors) >= 2e-5


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "bits"), [("a8w8", 7), ("a8w4", 8)])
def test_coarse_activations_move_logits_and_are_told(
    embedded_gguf: Path, scheme: str, bits: int, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = next(p.token_ids.tolist() for p in load_expected() if p.name == "code")

    with LLM(embedded_gguf, weights=scheme, kv_cache_dtype="fp32") as llm:
        logits = llm.logits(prompt)
        reference = llama_logits(llm.config, ArtifactWeights(llm.artifact), prompt)
        reason = llm.weights_reason

    # 63 and 127 steps instead of 32,767: measured 5e-2 and 2e-2 in the median, never below 1e-3.
    errors = np.abs(logits - reference).max(axis=1) / np.abs(reference).max(axis=1)
    assert 1e-3 <= np.median(errors) <= 0.15
    assert f"rounded to {bits} bits" in caplog.text
    assert f"activations of {bits} bits" in reason
