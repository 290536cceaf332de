"""Small random Llama checkpoints, written by transformers, whose faults would show.

Default initialisation keeps attention nearly uniform, so that a wrong rotary embedding moves
logits by 2e-3 only; weights here are wide enough for peaked attention. Sizes are irregular.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM

__all__ = ["CASES", "TinyCase", "save_tiny_llama"]

_BASE: Mapping[str, Any] = {
    "hidden_size": 72,
    "intermediate_size": 171,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1003,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


@dataclass(frozen=True, slots=True)
class TinyCase:
    """One architecture and one way of storing it; `changes` are LlamaConfig's arguments."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dtype: str = "float32"
    max_shard_size: str = "1GB"
    rope_theta_at_top: bool = False
    """Spell config.json as transformers 4 did."""


CASES = (
    TinyCase("grouped queries, untied"),
    TinyCase("tied", {"tie_word_embeddings": True}),
    TinyCase("one head each", {"num_attention_heads": 3, "num_key_value_heads": 3}),
    TinyCase("one key head for all", {"num_attention_heads": 6, "num_key_value_heads": 1}),
    TinyCase("attention biases", {"attention_bias": True}),
    TinyCase("mlp biases", {"mlp_bias": True}),
    TinyCase("heads of 64", {"hidden_size": 200, "head_dim": 64}),
    TinyCase("heads of 80", {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 80}),
    TinyCase("heads of 128", {"hidden_size": 132, "head_dim": 128, "rope_theta": 500000.0}),
    TinyCase("sharded", max_shard_size="100KB"),
    TinyCase("stored as bfloat16", dtype="bfloat16"),
    TinyCase("stored as float16", {"tie_word_embeddings": True}, dtype="float16"),
    TinyCase("config of transformers 4", {"rope_theta": 300.0}, rope_theta_at_top=True),
)


def save_tiny_llama(case: TinyCase, directory: Path, seed: int = 1) -> LlamaForCausalLM:
    """Write the checkpoint; return its model, the stored weights widened to float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    dtype: torch.dtype = getattr(torch, case.dtype)
    config = LlamaConfig(**{**_BASE, **case.changes})
    model = LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_wide(name, parameter, generator).to(dtype))
    # A copy is narrowed: `to` would round the rotary frequencies of `model` itself as well.
    narrow = deepcopy(model).to(dtype)
    narrow.save_pretrained(directory, max_shard_size=case.max_shard_size)
    _write_tokenizer(directory, config.vocab_size)
    if case.rope_theta_at_top:
        _spell_as_transformers_4(directory / "config.json")
    return model


def _wide(name: str, parameter: Tensor, generator: Any) -> Tensor:
    import torch

    noise = torch.randn(parameter.shape, generator=generator)
    if "norm" in name:
        return 1 + 0.3 * noise
    if name.endswith("bias"):
        return 0.5 * noise
    if "embed_tokens" in name:
        return noise
    # A gain of 1.5 gives scores of standard deviation 2, so that some keys win.
    gain = 1.5 if "q_proj" in name or "k_proj" in name else 1.0
    return gain * noise / parameter.shape[1] ** 0.5


def _write_tokenizer(directory: Path, vocab_size: int) -> None:
    """Byte-level BPE with a text for every id: all bytes, then pairs of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(a, b) for a in symbols for b in symbols][: vocab_size - len(symbols)]
    tokens = [*symbols, *(a + b for a, b in pairs)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False}))


def _spell_as_transformers_4(path: Path) -> None:
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))
