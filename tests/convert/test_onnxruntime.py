"""A converted model in ONNX Runtime, which knows nothing of us, against a NumPy forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnxruntime
import pytest
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig, ntk_stage
from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.quantize import QuantizedRows, dequantize
from jit_kernels import panels
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config
from tests.model.numpy_llama import llama_logits

# ONNX Runtime adds in another order in float32; the reference is float64. Sums of <= 150 terms in
# each of a dozen products stay far below the 1e-4 asked for.
RELATIVE = 1e-5

each_scheme = pytest.mark.parametrize(
    "scheme", ["fp32", "bf16", "a16w8", "a16w8:32", "a16w8:row", "a16w4", "a16w4:row"]
)


def stored_weights(artifact: Artifact, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the float32 weights that the artifact's tensors stand for, [N, K]."""
    weights: dict[str, Any] = {}
    for name, shape in shapes.items():
        stored = artifact.tensor(name)
        if len(shape) == 1:
            weights[name] = stored
        elif stored.dtype == np.float32:
            weights[name] = panels.unpack_f32(stored, shape[0])
        elif stored.dtype == np.uint16:
            weights[name] = panels.from_bf16(panels.unpack_bf16(stored, *shape))
        else:
            scale, minimum = (artifact.tensor(f"{name}.{part}") for part in ("scale", "minimum"))
            is_head = name in ("lm_head.weight", "model.embed_tokens.weight")
            four_bits = artifact.metadata["scheme"].startswith("a16w4") and not is_head
            quantized = QuantizedRows(
                (panels.unpack_u4 if four_bits else panels.unpack_u8)(stored, *shape),
                panels.unpack_groups(scale, shape[0]),
                panels.unpack_groups(minimum, shape[0]),
            )
            size = artifact.metadata["group_size"]
            group = 64 if is_head else size
            weights[name] = dequantize(quantized, "row" if group == "row" else int(group))
    return weights


class Runtime:
    """The artifact's graph file, opened as any ONNX user would."""

    def __init__(self, artifact: Artifact, prompt_length: int = 0) -> None:
        self.config = artifact.config
        self.prompt_length = prompt_length
        self.session = onnxruntime.InferenceSession(artifact.graph_path)

    def empty(self) -> list[NDArray[np.float32]]:
        shape = (1, self.config.num_kv_heads, 0, self.config.head_dim)
        return [np.zeros(shape, np.float32)] * (2 * self.config.num_layers)

    def step(
        self, token_ids: NDArray[np.int64], start: int, past: list[NDArray[np.float32]]
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        positions = np.arange(start, start + len(token_ids))
        feeds: dict[str, Any] = {"input_ids": token_ids[None], "position_ids": positions[None]}
        if self.config.num_rotary_stages > 1:
            stage = ntk_stage(self.prompt_length, self.config.ntk_length)
            feeds["rotary_ids"] = feeds["position_ids"] + stage * self.config.context_length
        for layer in range(self.config.num_layers):
            feeds[f"past_key.{layer}"] = past[2 * layer]
            feeds[f"past_value.{layer}"] = past[2 * layer + 1]
        logits, *present = self.session.run(None, feeds)
        return logits[0], present


def _assert_close(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    np.testing.assert_array_less(np.abs(actual - expected) / largest, RELATIVE)


def _convert(config: ModelConfig, scheme: str, directory: Path) -> tuple[Artifact, dict[str, Any]]:
    checkpoint = tiny_checkpoint(config)
    artifact = convert(checkpoint, directory / "model", scheme)
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    return artifact, stored_weights(artifact, shapes)


@each_scheme
@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_numpy_on_the_stored_weights(scheme: str, tied: bool, tmp_path: Path) -> None:
    config = tiny_config(tie_word_embeddings=tied, attention_bias=not tied, mlp_bias=not tied)
    artifact, weights = _convert(config, scheme, tmp_path)
    token_ids = np.random.default_rng(3).integers(0, config.vocab_size, 19)
    expected = llama_logits(config, weights, token_ids, np.float64)

    runtime = Runtime(artifact)
    _assert_close(runtime.step(token_ids, 0, runtime.empty())[0], expected)


@each_scheme
def test_logits_are_the_same_through_the_cache(scheme: str, tmp_path: Path) -> None:
    artifact, weights = _convert(tiny_config(), scheme, tmp_path)
    token_ids = np.random.default_rng(4).integers(0, 101, 12)
    expected = llama_logits(artifact.config, weights, token_ids, np.float64)

    runtime = Runtime(artifact)
    past, found = runtime.empty(), []
    for start, stop in [(0, 7), (7, 8), (8, 12)]:
        logits, past = runtime.step(token_ids[start:stop], start, past)
        found.append(logits)
    _assert_close(np.concatenate(found), expected)


@each_scheme
def test_the_graph_file_is_valid_onnx_of_opset_24(scheme: str, tmp_path: Path) -> None:
    artifact, _ = _convert(tiny_config(), scheme, tmp_path)
    onnx.checker.check_model(artifact.graph_path, full_check=True)
    model = onnx.load(artifact.graph_path, load_external_data=False)

    assert {(entry.domain, entry.version) for entry in model.opset_import} == {
        ("", 24),
        ("dashinfer_lab", 1),
    }
    assert model.ir_version >= 10
    assert model.producer_name == "dashinfer_lab"
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["scheme"] == artifact.metadata["scheme"]
    assert metadata["source"] == "tiny"


def test_fp32_weights_are_stored_bit_for_bit(tmp_path: Path) -> None:
    config = tiny_config()
    _, weights = _convert(config, "fp32", tmp_path)

    for name, tensor in tiny_checkpoint(config).tensors.items():
        np.testing.assert_array_equal(weights[name], tensor)
