"""Tiny checkpoints of every model family, their weights drawn without torch, whose faults show.

Weights are wide enough for peaked attention: with default initialisation a wrong rotary embedding
moves logits by 2e-3 only. Sizes are irregular. Knows no reader of checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.model.case_sizes import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    KV_WIDTH,
    LAYERS,
    Q_WIDTH,
    SQUARE,
    VOCAB,
)
from tests.model.expert_cases import QWEN_PARTS, expert_tensors, stacked_expert_tensors
from tests.model.layer_shapes import (
    ALL_BIASES,
    ATTENTION,
    GEMMA_NORMS,
    GLM,
    INTERNLM2,
    LAYER,
    OLMO2,
    PHI3,
    PHI4,
    POST_NORMS,
    QK_NORMS,
    QKV_BIASES,
    SHARED_EXPERT,
)
from tests.model.original_layouts import (
    BAICHUAN_CONFIG,
    BAICHUAN_LAYER,
    CHATGLM_CONFIG,
    CHATGLM_LAYER,
    QWEN_CONFIG,
    QWEN_LAYER,
)

__all__ = ["CASES", "NUM_TOKENS", "FamilyCase", "OuterNames", "token_ids"]

NUM_TOKENS = 149
"""Past one attention segment (128 keys) and several pages; a prime."""

_SIZES: dict[str, object] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


class OuterNames(NamedTuple):
    """What a checkpoint calls what is outside its layers, and where these are."""

    embedding: str = "model.embed_tokens"
    layers: str = "model.layers"
    norm: str = "model.norm"
    head: str = "lm_head"


_LLAMA_NAMES = OuterNames()
INTERNLM2_NAMES = OuterNames("model.tok_embeddings", head="output")
CHATGLM_NAMES = OuterNames(
    "transformer.embedding.word_embeddings", "transformer.encoder.layers",
    "transformer.encoder.final_layernorm", "transformer.output_layer",
)  # fmt: skip


QWEN_NAMES = OuterNames("transformer.wte", "transformer.h", "transformer.ln_f")


@dataclass(frozen=True, slots=True)
class FamilyCase:
    """A checkpoint: config.json beside the common sizes, and the tensors of a layer."""

    name: str
    config: Mapping[str, object]
    layer: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: LAYER)
    outer: OuterNames = _LLAMA_NAMES
    common: bool = True
    """Whether the common sizes are part of config.json."""
    last: Mapping[str, tuple[int, ...]] | None = None
    """The tensors of the last layer, where they are others."""

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Weights under the checkpoint's names; the same on every machine and NumPy."""
        names, hidden = self.outer, int(str(self.whole_config()["hidden_size"]))
        shapes = {f"{names.embedding}.weight": (VOCAB, hidden), f"{names.norm}.weight": (hidden,)}
        shapes |= {
            f"{names.layers}.{i}.{name}": shape
            for i in range(LAYERS)
            for name, shape in self._tensors_of_layer(i).items()
        }
        if not self.whole_config().get("tie_word_embeddings"):
            shapes[f"{names.head}.weight"] = (VOCAB, hidden)
        random = np.random.RandomState(7)  # its stream is frozen
        return {name: _wide(name, shape, random) for name, shape in shapes.items()}

    def _tensors_of_layer(self, layer: int) -> Mapping[str, tuple[int, ...]]:
        return self.last if self.last and layer == LAYERS - 1 else self.layer

    @property
    def has_experts(self) -> bool:
        """Whether rows choose among experts."""
        return "num_experts_per_tok" in self.config

    def whole_config(self) -> dict[str, object]:
        """The contents of config.json."""
        return {**(_SIZES if self.common else {}), **self.config}

    def write(self, directory: Path) -> Path:
        """Write config.json and model.safetensors."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.whole_config()), encoding="utf-8")
        save_file(self.tensors(), directory / "model.safetensors", {"format": "pt"})
        return directory


def token_ids() -> list[int]:
    """The tokens that every case is tried with."""
    return np.random.RandomState(5).randint(VOCAB, size=NUM_TOKENS).tolist()


def _wide(name: str, shape: tuple[int, ...], random: Any) -> NDArray[np.float32]:
    noise = random.standard_normal(shape)
    if "norm" in name or "ln_" in name:
        return (1 + 0.3 * noise).astype(np.float32)
    if name.endswith("bias"):
        return (0.5 * noise).astype(np.float32)
    if "embed" in name or "wte" in name:
        return noise.astype(np.float32)
    # A gain of 1.5 gives scores of standard deviation 2, so that some keys win.
    peaked = ("q_proj", "k_proj", "qkv", "query_key", "W_pack", "c_attn", ".gate.")
    gain = 1.5 if any(part in name for part in peaked) else 1.0
    return (gain * noise / shape[-1] ** 0.5).astype(np.float32)


def _named(architecture: str, model_type: str, **changes: object) -> dict[str, object]:
    return {"architectures": [architecture], "model_type": model_type, **changes}


def _rope(**scaling: object) -> dict[str, object]:
    return _named("LlamaForCausalLM", "llama", rope_scaling=scaling)


CASES = (
    FamilyCase(
        "qwen2",
        _named(
            "Qwen2ForCausalLM", "qwen2", use_sliding_window=False, sliding_window=32,
            max_window_layers=1, rope_theta=1e6,
        ),
        LAYER | QKV_BIASES,
    ),
    FamilyCase(
        "qwen2 tied, spelled as transformers 5 does",
        _named(
            "Qwen2ForCausalLM", "qwen2", tie_word_embeddings=True, rope_theta=None,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0}, dtype="float32",
        ),
        LAYER | QKV_BIASES,
    ),
    FamilyCase(
        "qwen2 within a window from layer 1 on",
        _named(
            "Qwen2ForCausalLM", "qwen2", use_sliding_window=True, sliding_window=37,
            max_window_layers=1,
        ),
        LAYER | QKV_BIASES,
    ),
    FamilyCase("qwen3", _named("Qwen3ForCausalLM", "qwen3", rope_theta=1e6), LAYER | QK_NORMS),
    FamilyCase(
        "qwen3 with biases, tied",
        _named(
            "Qwen3ForCausalLM", "qwen3", attention_bias=True, tie_word_embeddings=True,
            use_sliding_window=True, sliding_window=256, max_window_layers=0,
        ),
        LAYER | QK_NORMS | ALL_BIASES,
    ),
    FamilyCase("mistral", _named("MistralForCausalLM", "mistral", sliding_window=None), LAYER),
    FamilyCase(
        "mistral within a window", _named("MistralForCausalLM", "mistral", sliding_window=19)
    ),
    FamilyCase(
        "phi3", _named("Phi3ForCausalLM", "phi3", sliding_window=256), PHI3
    ),
    FamilyCase(
        "phi3 of a part of each head, with LongRoPE, tied",
        _named(
            "Phi3ForCausalLM", "phi3", sliding_window=None, tie_word_embeddings=True,
            partial_rotary_factor=0.75, original_max_position_embeddings=100,
            hidden_size=SQUARE, num_attention_heads=6, head_dim=16,
            rope_scaling={
                "type": "longrope",
                "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
                "long_factor": [1.0, 1.7, 2.9, 4.3, 6.1, 9.7],
            },
        ),
        PHI4,
    ),
    FamilyCase(
        "phi3 within LongRoPE's original length",
        _named(
            "Phi3ForCausalLM", "phi3", tie_word_embeddings=True, hidden_size=SQUARE,
            num_attention_heads=6, head_dim=16, original_max_position_embeddings=256,
            rope_parameters={
                "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
                "original_max_position_embeddings": 256, "attention_factor": 1.097324,
                "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
                "long_factor": [1.0, 1.7, 2.9, 4.3, 6.1, 9.7],
            },
        ),
        PHI4,
    ),
    FamilyCase(
        "internlm2", _named("InternLM2ForCausalLM", "internlm2", bias=False), INTERNLM2,
        INTERNLM2_NAMES,
    ),
    FamilyCase(
        "internlm2 with biases",
        _named(
            "InternLM2ForCausalLM", "internlm2", bias=True,
            rope_scaling={"type": "dynamic", "factor": 2.0},
        ),
        INTERNLM2
        | {"attention.wqkv.bias": (Q_WIDTH + 2 * KV_WIDTH,), "attention.wo.bias": (HIDDEN,)},
        INTERNLM2_NAMES,
    ),
    FamilyCase("olmo2", _named("Olmo2ForCausalLM", "olmo2"), OLMO2),
    FamilyCase(
        "olmo2 with biases, tied",
        _named(
            "Olmo2ForCausalLM", "olmo2", attention_bias=True, tie_word_embeddings=True,
            rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        ),
        OLMO2 | ALL_BIASES,
    ),
    FamilyCase("glm", _named("GlmForCausalLM", "glm"), GLM | QKV_BIASES),
    FamilyCase(
        "glm4, tied",
        _named(
            "Glm4ForCausalLM", "glm4", tie_word_embeddings=True, rope_theta=None,
            attention_bias=False, rope_parameters={
                "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.75
            },
        ),
        GLM | POST_NORMS,
    ),
    FamilyCase(
        "gemma2",
        _named(
            "Gemma2ForCausalLM", "gemma2", hidden_act=None, tie_word_embeddings=True,
            sliding_window=45, query_pre_attn_scalar=24,
        ),
        LAYER | GEMMA_NORMS,
    ),
    FamilyCase(
        "gemma2 without bounds",
        _named(
            "Gemma2ForCausalLM", "gemma2", hidden_act="gelu_pytorch_tanh", rope_theta=None,
            hidden_activation="gelu_pytorch_tanh", attention_bias=True, sliding_window=45,
            layer_types=["full_attention", "sliding_attention"], attn_logit_softcapping=None,
            final_logit_softcapping=None,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
        LAYER | ALL_BIASES | GEMMA_NORMS,
    ),
    FamilyCase(
        "gemma3",
        _named(
            "Gemma3ForCausalLM", "gemma3_text", hidden_act=None, tie_word_embeddings=True,
            sliding_window=45, sliding_window_pattern=2, query_pre_attn_scalar=24,
            rope_theta=1e5, rope_local_base_freq=300.0,
            rope_scaling={"rope_type": "linear", "factor": 2.5},
        ),
        LAYER | QK_NORMS | GEMMA_NORMS,
    ),
    FamilyCase(
        "gemma3 spelled as transformers 5 does",
        _named(
            "Gemma3ForCausalLM", "gemma3_text", hidden_act=None, rope_theta=None,
            layer_types=["full_attention", "sliding_attention"], sliding_window=512,
            final_logit_softcapping=12.0,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 7000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
            },
        ),
        LAYER | QK_NORMS | GEMMA_NORMS,
    ),
    FamilyCase(
        "baichuan 7B",
        {**BAICHUAN_CONFIG, "model_type": "Baichuan", "max_position_embeddings": 256},
        BAICHUAN_LAYER, common=False,
    ),
    FamilyCase(
        "baichuan 2, 13B", {**BAICHUAN_CONFIG, "model_type": "baichuan", "z_loss_weight": 0},
        BAICHUAN_LAYER, common=False,
    ),
    FamilyCase("qwen", QWEN_CONFIG, QWEN_LAYER, QWEN_NAMES, common=False),
    FamilyCase(
        "qwen, stretched", {**QWEN_CONFIG, "use_dynamic_ntk": True, "seq_length": 60}, QWEN_LAYER,
        QWEN_NAMES, common=False,
    ),
    FamilyCase(
        "chatglm", {**CHATGLM_CONFIG, "rope_ratio": 50}, CHATGLM_LAYER, CHATGLM_NAMES, common=False
    ),
    FamilyCase(
        "chatglm 2, stretched",
        {**CHATGLM_CONFIG, "model_type": "ChatGLM_v2", "rope_ratio": 2.5},
        CHATGLM_LAYER, CHATGLM_NAMES, common=False,
    ),
    FamilyCase(
        "mixtral",
        _named(
            "MixtralForCausalLM", "mixtral", num_local_experts=5, num_experts_per_tok=2,
            sliding_window=None,
        ),
        ATTENTION | expert_tensors("block_sparse_moe", 5, HIDDEN, INNER, ("w1", "w3", "w2")),
    ),
    FamilyCase(
        "qwen2_moe",
        _named(
            "Qwen2MoeForCausalLM", "qwen2_moe", decoder_sparse_step=2, num_experts=7,
            num_experts_per_tok=3, moe_intermediate_size=51, shared_expert_intermediate_size=83,
            use_sliding_window=False, sliding_window=32, max_window_layers=1,
        ),
        LAYER | QKV_BIASES,
        last=ATTENTION | QKV_BIASES | SHARED_EXPERT
        | expert_tensors("mlp", 7, HIDDEN, 51, QWEN_PARTS),
    ),
    FamilyCase(
        "qwen3_moe",
        _named(
            "Qwen3MoeForCausalLM", "qwen3_moe", mlp_only_layers=[1], num_experts=9,
            num_experts_per_tok=4, moe_intermediate_size=67, norm_topk_prob=True, rope_theta=1e6,
        ),
        ATTENTION | QK_NORMS | expert_tensors("mlp", 9, HIDDEN, 67, QWEN_PARTS),
        last=LAYER | QK_NORMS,
    ),
    FamilyCase(
        "qwen3_moe, spelled as transformers 5 does",
        _named(
            "Qwen3MoeForCausalLM", "qwen3_moe", num_experts=17, num_experts_per_tok=1,
            moe_intermediate_size=32, norm_topk_prob=False, tie_word_embeddings=True,
            rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
        ATTENTION | QK_NORMS | stacked_expert_tensors("mlp", 17, HIDDEN, 32),
    ),
    FamilyCase("llama, linear", _rope(type="linear", factor=2.5)),
    FamilyCase("llama, dynamic", _rope(type="dynamic", factor=4.0)),
    FamilyCase(
        "llama, llama3",
        _rope(
            rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ),
    FamilyCase(
        "llama, yarn",
        _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
    ),
)  # fmt: skip
"""One or two of a family, and one of each way to stretch positions."""
