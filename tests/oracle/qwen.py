"""Qwen, the first, in transformers, which has no class for it: a Qwen 2 whose queries grow."""

from __future__ import annotations

from math import ceil, log, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.model.family_cases import NUM_TOKENS, FamilyCase
from tests.oracle.relaid import written

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["add_logn", "qwen_as_qwen2"]

_NAMES = {
    "transformer.wte": "model.embed_tokens",
    "transformer.ln_f": "model.norm",
    "transformer.h": "model.layers",
    "ln_1": "input_layernorm",
    "ln_2": "post_attention_layernorm",
    "attn.c_proj": "self_attn.o_proj",
    "mlp.c_proj": "mlp.down_proj",
    "mlp.w1": "mlp.up_proj",
    "mlp.w2": "mlp.gate_proj",
}


def qwen_as_qwen2(case: FamilyCase, directory: Path) -> Path:
    """Lay it out as a Qwen 2: the same decoder, q, k and v apart."""
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in case.tensors().items():
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        if "c_attn" not in name:
            tensors[name] = tensor
            continue
        for part, rows in zip("qkv", np.split(tensor, 3), strict=True):
            target = name.replace("attn.c_attn", f"self_attn.{part}_proj")
            tensors[target] = np.ascontiguousarray(rows)
    stated = case.config
    base, head_dim = float(str(stated["rotary_emb_base"])), int(str(stated["kv_channels"]))
    if stated["use_dynamic_ntk"]:
        # All prompts that the case is tried with, of 121 to 149 tokens, have the same growth.
        ratio = NUM_TOKENS / int(str(stated["seq_length"]))
        base *= (2 ** ceil(log2(ratio) + 1) - 1) ** (head_dim / (head_dim - 2))
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": stated["vocab_size"],
        "hidden_size": stated["hidden_size"],
        "intermediate_size": int(str(stated["intermediate_size"])) // 2,
        "num_hidden_layers": stated["num_hidden_layers"],
        "num_attention_heads": stated["num_attention_heads"],
        "num_key_value_heads": stated["num_attention_heads"],
        "max_position_embeddings": stated["max_position_embeddings"],
        "rms_norm_eps": stated["layer_norm_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "tie_word_embeddings": False,
        "pad_token_id": 0,
    }
    return written(config, tensors, directory)


def add_logn(model: PreTrainedModel, trained_length: int) -> None:
    """Multiply queries after position `trained_length` by log(position) to that base (Su 2021)."""
    import torch

    def grown(_: object, __: object, queries: Any) -> Any:
        counts = range(1, queries.shape[1] + 1)
        factors = [log(n, trained_length) if n > trained_length else 1.0 for n in counts]
        return queries * torch.tensor(factors)[:, None]

    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(grown)
