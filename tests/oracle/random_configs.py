"""Configurations of every family drawn at random, as transformers takes them; draws no weights."""

from __future__ import annotations

from random import Random
from typing import Any

__all__ = ["FAMILIES", "random_config", "respelled"]

FAMILIES = (
    "llama", "qwen2", "qwen3", "mistral", "mixtral", "phi3", "glm", "glm4", "gemma2",
    "gemma3_text", "olmo2", "qwen2_moe", "qwen3_moe",
)  # fmt: skip
_BIASED = ("llama", "qwen3", "glm", "glm4", "gemma2", "gemma3_text", "olmo2", "qwen3_moe")
_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
_KINDS_OF = {"phi3": ("default", "longrope"), "gemma3_text": _KINDS[:-1]}


def random_config(model_type: str, draw: Random) -> dict[str, Any]:
    """Arguments of the configuration class; sizes are small, and seldom multiples."""
    heads, head_dim = draw.choice((2, 4, 6)), draw.choice((16, 32))
    width = head_dim if model_type == "phi3" else draw.choice((head_dim, 8, 12, 20))
    config: dict[str, Any] = {
        "vocab_size": 211,
        "hidden_size": heads * width,
        "intermediate_size": 75,
        "num_hidden_layers": draw.choice((2, 3)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice((1, 2, heads)),
        "head_dim": head_dim,
        "max_position_embeddings": draw.choice((160, 256)),
        "rms_norm_eps": draw.choice((1e-3, 1e-5, 1e-6)),
        "tie_word_embeddings": draw.random() < 0.4,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    rope = _rope(model_type, head_dim, draw)
    config["rope_parameters"] = rope
    if "short_factor" in rope:
        length = "original_max_position_embeddings"
        config |= {length: rope[length]} if model_type == "phi3" else {}
    if model_type == "gemma3_text":
        local = {"rope_type": "default", "rope_theta": 300.0}
        config["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    if model_type in _BIASED:
        config["attention_bias"] = draw.random() < 0.5
    if model_type == "llama":
        config["mlp_bias"] = draw.random() < 0.4
    return config | _window(model_type, config, draw) | _experts(model_type, draw)


def _rope(model_type: str, head_dim: int, draw: Random) -> dict[str, Any]:
    kind = draw.choice(_KINDS_OF.get(model_type, _KINDS))
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": draw.choice((1e4, 500.0, 1e6))}
    share = 1.0
    if model_type in ("glm", "glm4", "phi3"):
        share = rope["partial_rotary_factor"] = draw.choice((0.25, 0.5, 0.75, 1.0))
    if kind in ("linear", "dynamic", "llama3", "yarn"):
        rope["factor"] = draw.choice((2.0, 4.0))
    if kind in ("llama3", "yarn", "longrope"):  # shorter than what is asked: both take long factors
        rope["original_max_position_embeddings"] = draw.choice((64, 100, 140))
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if kind == "yarn":
        rope |= draw.choice(({}, {"beta_fast": 16.0}, {"mscale": 0.7, "mscale_all_dim": 1.1}))
        # Where every kind of layer has its own rope, transformers 5 does not find this key.
        rope |= {} if model_type == "gemma3_text" else draw.choice(({}, {"truncate": False}))
    if kind == "longrope":
        pairs = range(int(head_dim * share) // 2)
        rope |= {f"{name}_factor": [1 + by * i for i in pairs]
                 for name, by in (("short", 0.1), ("long", 0.7))}  # fmt: skip
        rope |= draw.choice(({}, {"factor": 1.0}, {"factor": 3.0}))
    if kind in ("yarn", "longrope"):
        rope |= draw.choice(({}, {"attention_factor": 1.3}))
    return rope


def _window(model_type: str, config: dict[str, Any], draw: Random) -> dict[str, Any]:
    window: dict[str, Any] = {"sliding_window": draw.choice((20, 100))}
    listed = [draw.choice(("full_attention", "sliding_attention"))
              for _ in range(config["num_hidden_layers"])]  # fmt: skip
    kinds = draw.choice(({}, {"layer_types": listed}))
    if model_type.startswith("qwen"):
        switched = draw.random() < 0.5
        first = {"use_sliding_window": switched, "max_window_layers": draw.choice((0, 1, 2))}
        return window | first | (kinds if switched and model_type != "qwen3_moe" else {})
    if model_type.startswith("gemma"):
        softcaps = {name: draw.choice((None, 5.0)) for name in
                    ("attn_logit_softcapping", "final_logit_softcapping")}  # fmt: skip
        scores = {"query_pre_attn_scalar": draw.choice((16, 100))}
        return window | kinds | scores | (softcaps if model_type == "gemma2" else {})
    if model_type in ("mistral", "mixtral", "phi3"):
        return draw.choice((window, {"sliding_window": None}))
    return {}


def _experts(model_type: str, draw: Random) -> dict[str, Any]:
    if model_type == "mixtral":
        return {
            "num_local_experts": draw.choice((4, 5)),
            "num_experts_per_tok": draw.choice((1, 3)),
        }
    if not model_type.endswith("_moe"):
        return {}
    shared = {"shared_expert_intermediate_size": 61, "qkv_bias": draw.random() < 0.7}
    return {
        "num_experts": draw.choice((4, 5)),
        "num_experts_per_tok": draw.choice((1, 2, 3)),
        "moe_intermediate_size": draw.choice((33, 48)),
        "norm_topk_prob": draw.random() < 0.5,
        "decoder_sparse_step": draw.choice((1, 2)),
        "mlp_only_layers": draw.choice(([], [0])),
    } | (shared if model_type == "qwen2_moe" else {})


def respelled(saved: dict[str, Any], defaults: dict[str, Any], draw: Random) -> dict[str, Any]:
    """A config.json that transformers 5 saved, maybe as 4 spells it, some defaults left out."""
    kept = {"architectures", "model_type", "vocab_size", "rope_parameters", "layer_types"}
    config = {
        key: value for key, value in saved.items()
        if key in kept or key not in defaults or defaults[key] != value or draw.random() < 0.3
    }  # fmt: skip
    rope = config["rope_parameters"]
    if draw.random() < 0.5 or "full_attention" in rope:
        return config
    four = {key: it for key, it in rope.items() if key not in ("rope_theta", "rope_type")}
    partial = four.pop("partial_rotary_factor", None)
    four[draw.choice(("type", "rope_type"))] = rope["rope_type"]
    del config["rope_parameters"]
    config |= {"rope_theta": rope["rope_theta"], "partial_rotary_factor": partial}
    return config | {"rope_scaling": None if rope["rope_type"] == "default" else four}
