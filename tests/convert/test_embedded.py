"""The embedded model, converted from its GGUF file and run by ONNX Runtime."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab.convert.converter import convert
from dashinfer_lab.hub.gguf_checkpoint import GgufCheckpoint
from tests.convert.test_onnxruntime import Runtime, stored_weights
from tests.model.numpy_llama import llama_logits

# "The capital of France is"
PROMPT = np.array([504, 3575, 282, 4649, 314])
PARIS = 7042


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model_answers_paris_in_onnx_runtime(
    embedded_gguf: Path, tmp_path: Path
) -> None:
    checkpoint = GgufCheckpoint(embedded_gguf)
    artifact = convert(checkpoint, tmp_path / "model", "a16w8")
    shapes = {name: checkpoint.info(name).shape for name in checkpoint.names()}
    checkpoint.close()

    scales = {t.dtype for name, t in artifact.tensors.items() if name.endswith("weight.scale")}
    assert scales == {"F16"}
    assert artifact.num_bytes < 146e6
    runtime = Runtime(artifact)
    logits, _ = runtime.step(PROMPT, 0, runtime.empty())
    assert logits[-1].argmax() == PARIS
    expected = llama_logits(artifact.config, stored_weights(artifact, shapes), PROMPT)
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    # Both sides add in float32, over 30 layers; 1e-4 is what a forward pass is held to.
    np.testing.assert_array_less(np.abs(logits - expected) / largest, 1e-4)


@pytest.mark.model
def test_4_bits_in_groups_of_32_are_the_file_bit_for_bit_and_in_64_are_not(
    embedded_gguf: Path, tmp_path: Path
) -> None:
    """The file's linear weights are Q4_1: 4 bits, a float16 scale and minimum each 32."""
    errors: dict[str, float] = {}
    with closing(GgufCheckpoint(embedded_gguf)) as checkpoint:
        names = [name for name in checkpoint.names() if ".7." in name and "proj" in name]
        shapes = {name: checkpoint.info(name).shape for name in names}
        rows = {name: np.asarray(checkpoint.read(name), np.float32) for name in names}
        for scheme in ("a16w4:32", "a16w4:64"):
            artifact = convert(checkpoint, tmp_path / scheme.replace(":", "_"), scheme)
            stored = stored_weights(artifact, shapes)
            lost = sum(float(np.square(stored[name] - rows[name]).sum()) for name in names)
            errors[scheme] = (lost / sum(float(np.square(r).sum()) for r in rows.values())) ** 0.5

    assert len(names) == 7
    assert errors["a16w4:32"] == 0
    # Two blocks on one grid lose 8 % of the root mean square, as other weights do.
    assert 0.05 < errors["a16w4:64"] < 0.1
