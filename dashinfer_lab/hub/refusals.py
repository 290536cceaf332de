"""Keys of a config.json that would change the numbers if they were ignored, refused by name."""

from __future__ import annotations

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import Config
from dashinfer_lab.hub.expert_settings import EXPERT_COUNT_KEYS
from dashinfer_lab.hub.families import Family

__all__ = ["refuse_unsupported"]

# Keys that change an architecture, and the values under which they change nothing.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "quantization_config": (),
    "compression_config": (),
    "quantization": (),
    "pretraining_tp": (1,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "query_pre_attn_scalar": (),
    "attention_multiplier": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "lm_head_multiplier": (1,),
    "logit_scale": (1,),
    "scale_emb": (1,),
    "scale_depth": (),
    "scale_embedding": (False,),
    "softmax_scale": (),
    "attn_scale": (),
    "attn_temperature_tuning": (False, 0),
    "attention_chunk_size": (0,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "clip_qkv": (0,),
    "attn_output_gate": (False,),
    "swiglu_limit": (0,),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
    "use_logn_attn": (False,),
    "use_dynamic_ntk": (False,),
    "alibi": (False,),
    "use_alibi": (False,),
    "position_embedding_type": ("rope", "rotary", "absolute"),
    "no_rope_layers": ([],),
    "no_rope_layer_interval": (0,),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "n_routed_experts": (0,),
    "n_shared_experts": (0,),
    "n_group": (0, 1),
    "routed_scaling_factor": (1,),
    "scoring_func": ("softmax",),
    "num_nextn_predict_layers": (0,),
    "num_kv_shared_layers": (0,),
    "hidden_size_per_layer_input": (0,),
    "kv_lora_rank": (0,),
    "parallel_attn": (False,),
    "use_parallel_residual": (False,),
    "multi_query": (False,),
    "norm_type": ("rmsnorm", "rms_norm"),
    "rotary_pct": (1,),
    "rope_pct": (1,),
    "rope_interleave": (False,),
    "rope_interleaved": (False,),
    "use_rope": (True,),
    "use_rotary": (True,),
    "interleaved_sliding_window": (),
    "rotary_dim": (),
    "use_mrope": (False,),
    "is_causal": (True,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "use_bidirectional_attention": (False,),
}
_ACTIVATIONS: dict[str, dict[str, tuple[object, ...]]] = {
    "silu": {"hidden_act": ("silu", "swish"), "hidden_activation": ("silu", "swish")},
    # Gemma's classes read hidden_activation alone; files have both.
    "gelu": {
        "hidden_act": ("gelu_pytorch_tanh", "gelu"), "hidden_activation": ("gelu_pytorch_tanh",)
    },
}  # fmt: skip
_SCORE_KEYS = {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}


def refuse_unsupported(config: Config, family: Family) -> None:
    """Raise UnsupportedModelError naming the first key that would change the numbers."""
    read_elsewhere = _SCORE_KEYS if family.score_scalar else set[str]()
    read_elsewhere = read_elsewhere | (set(EXPERT_COUNT_KEYS) if family.experts else set())
    for key, neutral in {**_NEUTRAL, **_ACTIVATIONS[family.activation]}.items():
        value = None if key in read_elsewhere else config.get(key)
        if value is not None and value not in neutral:
            raise UnsupportedModelError(
                f"{key} {value!r:.200} is not supported for this architecture. Use a "
                "checkpoint without it."
            )
    dtypes = {str(config[key]) for key in ("dtype", "torch_dtype") if config.get(key) is not None}
    if len(dtypes) > 1:
        raise CheckpointError(f"dtype and torch_dtype differ: {', '.join(sorted(dtypes))}")
