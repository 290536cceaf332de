"""Keys of config.json that would change the numbers silently, and those that change nothing."""

from __future__ import annotations

import pytest

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.hub import model_config
from tests.hub.test_model_config import SIZES
from tests.model.family_cases import CASES, FamilyCase


# Keys by which architectures that look like Llama differ from it without a tensor more or less.
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention_multiplier", 0.0078125),
        ("residual_multiplier", 0.22),
        ("logits_scaling", 8.0),
        ("logit_scale", 0.0625),
        ("scale_emb", 12),
        ("scale_depth", 1.4),
        ("scale_embedding", True),
        ("softmax_scale", 0.125),
        ("attn_scale", 0.1),
        ("attn_temperature_tuning", True),
        ("attention_chunk_size", 8192),
        ("clip_qkv", 8.0),
        ("query_pre_attn_scalar", 256),
        ("no_rope_layers", [1, 1, 1, 0]),
        ("no_rope_layer_interval", 4),
        ("alibi", True),
        ("use_logn_attn", True),
        ("position_embedding_type", "alibi"),
        ("rotary_pct", 0.25),
        ("rope_pct", 0.25),
        ("rope_interleave", True),
        ("use_rope", False),
        ("interleaved_sliding_window", 4096),
        ("lm_head_multiplier", 0.5),
        ("swiglu_limit", 7.0),
        ("attn_output_gate", True),
        ("rotary_dim", 64),
        ("use_mrope", True),
        ("multi_query", True),
        ("parallel_attn", True),
        ("use_parallel_residual", True),
        ("norm_type", "layer_norm"),
        ("is_causal", False),
        ("use_bidirectional_attention", True),
        ("n_routed_experts", 64),
        ("n_shared_experts", 2),
        ("n_group", 8),
        ("routed_scaling_factor", 2.5),
        ("scoring_func", "sigmoid"),
        ("num_kv_shared_layers", 10),
        ("hidden_size_per_layer_input", 256),
        ("kv_lora_rank", 512),
        ("num_nextn_predict_layers", 1),
    ],
)
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "glm4"])
def test_a_key_that_changes_the_architecture_is_refused_by_name(
    model_type: str, key: str, value: object
) -> None:
    config: dict[str, object] = {
        **SIZES, "architectures": None, "model_type": model_type, "num_key_value_heads": 2
    }  # fmt: skip
    model_config(config)

    with pytest.raises(UnsupportedModelError, match=f"{key} "):
        model_config(config | {key: value})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_keys_that_change_nothing_are_read_over(case: FamilyCase) -> None:
    neutral = {
        "routed_scaling_factor": 1.0, "attention_chunk_size": None, "rotary_pct": 1.0,
        "use_mrope": False, "scoring_func": "softmax", "n_group": 1, "logit_scale": 1.0,
        "kv_lora_rank": None, "is_causal": True, "norm_type": "rmsnorm", "use_cache": True,
        "auto_map": {"AutoModel": "x.Y"}, "initializer_range": 0.02, "attention_dropout": 0.0,
    }  # fmt: skip

    assert model_config({**neutral, **case.whole_config()}) == model_config(case.whole_config())
