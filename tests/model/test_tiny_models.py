"""Whole models of odd sizes against the NumPy Llama on their own, dequantised weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert.converter import convert
from tests.convert.memory_checkpoint import tiny_checkpoint
from tests.model.artifact_weights import ArtifactWeights
from tests.model.numpy_llama import llama_logits
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

TOKENS = np.random.default_rng(3).integers(0, 331, 140).tolist()

SHAPES: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "biases everywhere": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    "one kv head": {"num_heads": 5, "num_kv_heads": 1, "head_dim": 32},
    "no grouping": {"num_heads": 3, "num_kv_heads": 3, "head_dim": 48, "hidden_size": 100},
    "wide head": {"num_heads": 2, "num_kv_heads": 1, "head_dim": 128},
}


def relative_error(llm: LLM) -> float:
    """Largest deviation of any logit, relative to its row's largest."""
    weights = ArtifactWeights(llm.artifact)
    expected = llama_logits(llm.config, weights, TOKENS, np.float64)
    errors = np.abs(llm.logits(TOKENS) - expected).max(axis=1) / np.abs(expected).max(axis=1)
    return float(errors.max())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("scheme", "tolerance"), [("fp32", 1e-5), ("bf16", 1e-5), ("a16w8", 1e-3), ("a16w4", 1e-3)]
)
def test_every_shape_agrees_with_numpy(
    tmp_path: Path, shape: str, scheme: str, tolerance: float
) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", scheme, tiny_llama(**SHAPES[shape]))

    with LLM(artifact.directory, kv_cache_dtype="fp32") as llm:
        assert relative_error(llm) <= tolerance


@pytest.mark.parametrize("scheme", ["a16w8", "a16w4"])
@pytest.mark.parametrize("group", ["32", "64", "128", "256", "512", "row"])
def test_every_group_size_agrees_with_numpy(tmp_path: Path, scheme: str, group: str) -> None:
    config = tiny_llama(hidden_size=600, intermediate_size=1030, tie_word_embeddings=False)
    artifact = tiny_artifact(tmp_path / "tiny", f"{scheme}:{group}", config)

    with LLM(artifact.directory, kv_cache_dtype="fp32") as llm:
        # int16 activations measure 1e-4 here; a wrong scale or group would measure 1e-1.
        assert relative_error(llm) <= 1e-3


@pytest.mark.parametrize(
    ("scheme", "tolerance"), [("fp32", 1e-5), ("bf16", 1e-5), ("a16w8", 1e-3), ("a16w4", 1e-3)]
)
def test_activations_beyond_float16_stay_exact(
    tmp_path: Path, scheme: str, tolerance: float
) -> None:
    checkpoint = tiny_checkpoint(tiny_llama())
    for name, values in checkpoint.tensors.items():
        if name.endswith(("embed_tokens.weight", "v_proj.weight", "up_proj.weight")):
            values *= 1e6  # residuals, values and gated products, each over 65504
    artifact = convert(checkpoint, tmp_path / "large", scheme)
    (artifact.directory / "tokenizer.json").unlink()

    with LLM(artifact.directory, kv_cache_dtype="fp32") as llm:
        assert np.abs(llm.logits(TOKENS)).max() > 65504
        assert relative_error(llm) <= tolerance
