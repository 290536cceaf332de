"""What GGUF keeps otherwise than checkpoints do: rows, experts, settings; the rest is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import MODEL_ARCH, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from dashinfer_lab import LLM
from dashinfer_lab.convert import convert
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub import GgufCheckpoint, model_config
from dashinfer_lab.hub.gguf_config import hugging_face_config
from tests.convert.memory_checkpoint import MemoryCheckpoint
from tests.expected.families import load_family
from tests.hub.gguf_families import BAICHUAN, GGUF_CASES, GgufCase, write_family_gguf
from tests.hub.tiny_models import GGUFWriter, write_gguf
from tests.model.case_sizes import HEAD_DIM, HEADS, HIDDEN, KV_HEADS
from tests.model.family_cases import token_ids

BY_NAME = {str(each): each for each in GGUF_CASES}


def settings(architecture: str, **changes: object) -> dict[str, object]:
    """Metadata of a small model, keys without the architecture's name."""
    sizes: dict[str, object] = {
        "context_length": 8192,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "block_count": 2,
        "attention.head_count": 4,
        "attention.layer_norm_rms_epsilon": 1e-6,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    return {"general.architecture": architecture} | {
        f"{architecture}.{key}": value for key, value in sizes.items()
    }


def config_of(architecture: str, vocab_size: int = 100, **changes: object) -> dict[str, object]:
    tensors = {"token_embd.weight": (vocab_size, 64), "output.weight": (vocab_size, 64)}
    return hugging_face_config(settings(architecture, **changes), tensors)


def test_rows_are_read_across_what_was_taken_apart(tmp_path: Path) -> None:
    case = BAICHUAN.case
    packed = case.tensors()["model.layers.1.self_attn.W_pack.weight"]
    with GgufCheckpoint(write_family_gguf(BAICHUAN, tmp_path / "tiny.gguf")) as checkpoint:
        name = "model.layers.1.self_attn.W_pack.weight"
        assert checkpoint.info(name).shape == packed.shape
        for rows in (slice(0, 96), slice(90, 101), slice(3, 285), slice(191, 193), slice(7, 7)):
            np.testing.assert_array_equal(checkpoint.read(name, rows), packed[rows])


def test_baichuan_has_the_logits_of_its_checkpoint(tmp_path: Path) -> None:
    with GgufCheckpoint(write_family_gguf(BAICHUAN, tmp_path / "tiny.gguf")) as checkpoint:
        tensors = {name: checkpoint.read(name) for name in checkpoint.names()}
        # Its vocabulary would tell the generation; the tiny one is neither's.
        config = {**checkpoint.config, "model_type": "Baichuan"}
    artifact = convert(MemoryCheckpoint(config, tensors), tmp_path / "converted", "fp32")
    (artifact.directory / "tokenizer.json").unlink()
    with LLM(artifact.directory, threads=2) as llm:
        assert load_family("baichuan 7B").error(llm.logits(token_ids())).max() <= 1e-4


@pytest.mark.parametrize(
    ("layers", "vocab_size", "alibi", "unit_head"), [(32, 64000, False, False), (40, 125696, 1, 1)]
)
def test_baichuan_is_told_from_its_layers_and_vocabulary(
    layers: int, vocab_size: int, alibi: bool, unit_head: bool
) -> None:
    config = model_config(config_of("baichuan", vocab_size, block_count=layers))

    assert (config.alibi, config.unit_head) == (alibi, unit_head)
    assert config.context_length == 8192


def test_experts_are_read_from_their_slice_of_a_quantised_tensor(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    experts = random.standard_normal((3, 96, 64)).astype(np.float32)
    kind = GGMLQuantizationType.Q8_0
    stored = quantize(experts, kind)
    path = tmp_path / "tiny.gguf"
    writer = GGUFWriter(path, "llama")
    for key, value in settings("llama", expert_count=3, expert_used_count=2).items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
    writer.add_tensor("blk.0.ffn_up_exps.weight", stored, raw_dtype=kind)
    writer.add_tensor("blk.1.ffn_down.2.weight", experts[0])  # as files of 2023 have it
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with GgufCheckpoint(path) as checkpoint:
        prefix = "model.layers.{}.block_sparse_moe.experts.{}.{}.weight".format
        assert set(checkpoint.names()) == {
            *(prefix(0, expert, "w3") for expert in range(3)), prefix(1, 2, "w2")
        }  # fmt: skip
        assert sum(checkpoint.stored_bytes().values()) == stored.nbytes + experts[0].nbytes
        np.testing.assert_array_equal(
            checkpoint.read(prefix(0, 2, "w3"), slice(5, 9)), dequantize(stored[2, 5:9], kind)
        )
        np.testing.assert_array_equal(checkpoint.read(prefix(1, 2, "w2")), experts[0])
        assert checkpoint.config["architectures"] == ["MixtralForCausalLM"]


def test_experts_of_early_files_are_as_large_as_their_tensors() -> None:
    metadata = settings("qwen2moe", expert_count=3, expert_used_count=2)
    tensors = {
        "token_embd.weight": (100, 64),
        "blk.0.ffn_gate_exps.weight": (3, 40, 64),
        "blk.0.ffn_gate_shexp.weight": (56, 64),
    }
    experts = model_config(hugging_face_config(metadata, tensors)).experts

    assert experts is not None
    assert (experts.count, experts.per_token) == (3, 2)
    assert (experts.intermediate_size, experts.shared_size) == (40, 56)
    assert not experts.renormalise


@pytest.mark.parametrize(("layers", "scale"), [(26, 32**-0.5), (46, 16**-0.5)])
def test_gemma_2_of_27b_scales_scores_by_another_size(layers: int, scale: float) -> None:
    config = model_config(config_of("gemma2", block_count=layers, attention__key_length=32))

    assert config.attention_scale == pytest.approx(scale)
    assert (config.attention_softcap, config.logit_softcap) == (50.0, 30.0)


def test_gemma_3_has_two_rotations_and_a_pattern() -> None:
    scaled = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    config = model_config(
        config_of(
            "gemma3", block_count=7, attention__sliding_window=512, rope__freq_base=1e6, **scaled
        )
    )

    assert config.windows == (*[512] * 5, None, 512)
    assert config.local_rope is not None
    assert (config.rope.theta, config.rope.factor) == (1e6, 8.0)
    assert (config.local_rope.theta, config.local_rope.scaling) == (10000.0, "none")


def test_gemma_3_without_a_window_turns_all_layers_alike() -> None:
    config = model_config(config_of("gemma3"))

    assert config.windows == ()
    assert not any(config.local_layers)


def test_a_pattern_may_be_a_list() -> None:
    slides = {"attention__sliding_window": 64, "attention__sliding_window_pattern": [False, True]}

    assert model_config(config_of("gemma2", **slides)).windows == (None, 64)


def test_a_window_of_0_is_none() -> None:
    assert model_config(config_of("phi3", attention__sliding_window=0)).windows == ()
    assert model_config(config_of("phi3", attention__sliding_window=64)).windows == (64, 64)


@pytest.mark.parametrize(
    ("architecture", "changes", "named"),
    [
        ("qwen2moe", {"expert_count": "many"}, "num_experts"),
        ("qwen2", {"rope__dimension_count": 12}, "partial_rotary_factor 0.75"),
        ("llama", {"attention__sliding_window": 4096}, "sliding_window 4096"),
        ("olmo2", {"attention__sliding_window": 4096}, "sliding_window 4096"),  # OLMo 3
        ("llama", {"attention__layer_norm_rms_epsilon": None}, "no llama.attention.layer_norm"),
        ("llama", {"logit_scale": 0.0625}, "llama.logit_scale 0.0625"),
        ("llama", {"attention__causal": False}, "llama.attention.causal False"),
        ("qwen3moe", {"expert_gating_func": 2}, "qwen3moe.expert_gating_func 2"),
        ("glm4", {"nextn_predict_layers": 1}, "glm4.nextn_predict_layers 1"),
        ("llama", {"attention__key_length": 8, "attention__value_length": 16}, "value_length 16"),
        ("llama", {"attention__head_count_kv": [4, 2]}, "num_key_value_heads"),
        ("baichuan", {"rope__freq_base": 5e5}, "rope_parameters"),
        ("gemma", {}, "architecture gemma is not supported"),
        ("qwen3next", {}, "architecture qwen3next is not supported"),
        ("qwen", {}, "'qwen' is not supported: a GGUF file does not say whether logn"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    architecture: str, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises((CheckpointError, UnsupportedModelError), match=named):
        model_config(config_of(architecture, vocab_size=64000, **changes))


def test_the_first_qwen_is_refused_when_opened(tmp_path: Path) -> None:
    write_gguf(tmp_path / "qwen.gguf", architecture="qwen")

    with pytest.raises(UnsupportedModelError, match="Use the model's safetensors checkpoint"):
        GgufCheckpoint(tmp_path / "qwen.gguf")


@pytest.mark.parametrize("rows", [HEADS * HEAD_DIM + 2 * KV_HEADS * HEAD_DIM - 1, 7])
def test_heads_that_do_not_fit_are_refused(tmp_path: Path, rows: int) -> None:
    def cut(tensors: dict[str, Any]) -> Any:
        for name, tensor in tensors.items():
            yield name.removeprefix("transformer."), tensor[:rows] if "query" in name else tensor

    damaged = replace(BY_NAME["chatglm"], change=cut)

    with pytest.raises(CheckpointError, match="cannot share"):
        GgufCheckpoint(write_family_gguf(damaged, tmp_path / "tiny.gguf"))


@pytest.mark.parametrize("shape", [(5000, 8, 8), (4000, 1, 1), (3, 64)])
def test_experts_that_make_no_sense_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    many = {"blk.0.ffn_up_exps.weight": np.zeros(shape, np.float32)}
    write_gguf(tmp_path / "tiny.gguf", extra=many)

    with pytest.raises(CheckpointError, match=r"ffn_up_exps.*(make sense|that of experts)"):
        GgufCheckpoint(tmp_path / "tiny.gguf")


def test_a_weight_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    def twice(tensors: dict[str, Any]) -> Any:
        yield from tensors.items()
        width = (HEADS + 2 * KV_HEADS) * HEAD_DIM
        name = "model.layers.0.self_attn.qkv_proj.weight"
        yield name, np.zeros((width, HIDDEN), np.float32)

    case = BY_NAME["glm"].case
    doubled = GgufCase(case, MODEL_ARCH.CHATGLM, twice)

    with pytest.raises(CheckpointError, match=r"self_attn\.[qkv]_proj.* twice"):
        GgufCheckpoint(write_family_gguf(doubled, tmp_path / "tiny.gguf"))
