"""The embedded model, converted from its GGUF file and run by ONNX Runtime."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab.convert.converter import convert
from dashinfer_lab.hub.gguf_checkpoint import GgufCheckpoint
from dashinfer_lab.quantize import dequantize, quantize_rows
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
def test_blocks_of_32_with_4_bits_are_reproduced_bit_for_bit_and_64_are_not(
    embedded_gguf: Path,
) -> None:
    """The file's linear weights are Q4_1: 4 bits, a float16 scale and minimum each 32."""
    with closing(GgufCheckpoint(embedded_gguf)) as checkpoint:
        names = [name for name in checkpoint.names() if ".7." in name and "proj" in name]
        matrices = [
            np.asarray(checkpoint.read(name, slice(0, checkpoint.info(name).shape[0])), np.float32)
            for name in names
        ]
    assert len(matrices) == 7
    errors: dict[int, float] = {}
    for group in (32, 64):
        squares = 0.0
        for rows in matrices:
            quantized = quantize_rows(rows, group, np.float16, 4)
            assert quantized is not None
            squares += float(np.square(dequantize(quantized, group) - rows).sum())
        errors[group] = (squares / sum(float(np.square(rows).sum()) for rows in matrices)) ** 0.5

    assert errors[32] == 0
    # Two blocks on one grid: 8 % of the weights' root mean square, as for any weights.
    assert 0.05 < errors[64] < 0.1
