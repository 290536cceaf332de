"""How GGUF keeps each architecture: class, names of tensors, what its converter changed; no reader.

A line an architecture. Source: llama.cpp's converters and gguf-py's tensor_mapping, read backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dashinfer_lab.errors import UnsupportedModelError

__all__ = ["ARCHITECTURES", "GgufArchitecture", "gguf_architecture"]

_LLAMA: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_QWEN_EXPERTS: Final = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
_MIXTRAL_EXPERTS: Final = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
_GEMMA: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OLMO2: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FUSED_GATE: Final = {"ffn_up": "mlp.gate_up_proj"}
_GLM4: Final = {
    **_FUSED_GATE,
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
}
_BAICHUAN: Final[Mapping[str, str]] = {
    f"attn_{part}": "self_attn.W_pack" for part in ("q", "k", "v")
}


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """What a converter made of a checkpoint's tensors and settings."""

    hugging_face: str
    """The class of which the file is a checkpoint, in `architectures` of config.json."""
    changes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of a layer's tensors where they are not Llama's; {} stands for an expert's number."""
    with_experts: str | None = None
    """The class where the file has experts, if that is another."""
    pairs_heads: bool = False
    """Whether the rows of queries' and keys' heads are paired for interleaved rotation."""
    added_to_norms: float = 0.0
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Of config.json, what the architecture settles and the file does not say."""

    @property
    def layer_names(self) -> Mapping[str, str]:
        """Names of a layer's weights in the checkpoint, by GGUF's."""
        return {**_LLAMA, **self.changes}


_GELU: Final = {"hidden_act": None, "hidden_activation": "gelu_pytorch_tanh"}

ARCHITECTURES: Final[Mapping[str, GgufArchitecture]] = {
    "llama": GgufArchitecture(
        "LlamaForCausalLM", _MIXTRAL_EXPERTS, "MixtralForCausalLM", pairs_heads=True
    ),
    "qwen2": GgufArchitecture("Qwen2ForCausalLM"),
    "qwen3": GgufArchitecture("Qwen3ForCausalLM"),
    "qwen2moe": GgufArchitecture(
        "Qwen2MoeForCausalLM", _QWEN_EXPERTS, settings={"norm_topk_prob": False}
    ),
    "qwen3moe": GgufArchitecture(
        "Qwen3MoeForCausalLM", _QWEN_EXPERTS, settings={"norm_topk_prob": True}
    ),
    "gemma2": GgufArchitecture("Gemma2ForCausalLM", _GEMMA, added_to_norms=1.0, settings=_GELU),
    "gemma3": GgufArchitecture("Gemma3ForCausalLM", _GEMMA, added_to_norms=1.0, settings=_GELU),
    "phi3": GgufArchitecture("Phi3ForCausalLM", {**_FUSED_GATE, "attn_qkv": "self_attn.qkv_proj"}),
    # ChatGLM 2, 3 and GLM 4 are one decoder; `gguf_weights` takes their attn_qkv apart.
    "chatglm": GgufArchitecture("GlmForCausalLM", _FUSED_GATE),
    "glm4": GgufArchitecture("Glm4ForCausalLM", _GLM4),
    # OLMo 3 goes by this name, too: its window, of which config.json has no more, is refused.
    "olmo2": GgufArchitecture("Olmo2ForCausalLM", _OLMO2),
    # Its wqkv was taken apart and paired as Llama's: what is left is Llama's decoder.
    "internlm2": GgufArchitecture("LlamaForCausalLM", pairs_heads=True),
    "baichuan": GgufArchitecture("BaichuanForCausalLM", _BAICHUAN, pairs_heads=True),
}
_UNKNOWABLE: Final = {
    "qwen": "a GGUF file does not say whether logn attention and dynamic NTK hold beyond the "
    "trained length"
}


def gguf_architecture(name: str) -> GgufArchitecture:
    """Return how the architecture called `name` is kept; any other one's tensors as Llama's.

    Raises UnsupportedModelError for one that a GGUF file says too little about.
    """
    if name in _UNKNOWABLE:
        raise UnsupportedModelError(
            f"GGUF architecture {name!r} is not supported: {_UNKNOWABLE[name]}. Use the model's "
            "safetensors checkpoint."
        )
    return ARCHITECTURES.get(name, GgufArchitecture(name))
