"""Read a llama GGUF file into transformers, sharing no code with dashinfer_lab.

The second witness beside `dashinfer_lab.hub`: gguf's own dequantisation, the rotary permutation
undone here. Knows nothing of artifacts or of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM

__all__ = ["GgufLlama", "read_gguf_llama", "tokenizer_of", "transformers_llama"]

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


@dataclass(frozen=True, slots=True)
class GgufLlama:
    """Arguments of transformers' LlamaConfig, and float32 tensors under checkpoint names."""

    config: dict[str, Any]
    tensors: dict[str, NDArray[np.float32]]


def read_gguf_llama(path: Path) -> GgufLlama:
    """Dequantise every tensor of a llama GGUF file to float32."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(path)
    config = _config(reader)
    tensors: dict[str, NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        tensors[_checkpoint_name(tensor.name)] = _natural_order(tensor.name, values, config)
    config["tie_word_embeddings"] = "lm_head.weight" not in tensors
    return GgufLlama(config, tensors)


def transformers_llama(llama: GgufLlama) -> LlamaForCausalLM:
    """Build transformers' model in float32 with these weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**llama.config)).float().eval()
    state = {name: torch.from_numpy(values.copy()) for name, values in llama.tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    allowed = ["lm_head.weight"] if llama.config["tie_word_embeddings"] else []
    if list(missing) != allowed or unexpected:
        raise ValueError(f"GGUF and LlamaConfig disagree: missing {missing}, extra {unexpected}")
    model.tie_weights()
    return model


def tokenizer_of(path: Path) -> Tokenizer:
    """Rebuild the byte-level BPE of the file; digits stand alone, as "smollm" asks."""
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = GGUFReader(path).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(line.split(" ")) for line in fields["tokenizer.ggml.merges"].contents()]
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    control = 3  # gguf's TokenType.CONTROL

    tokenizer = Tokenizer(models.BPE(dict(zip(tokens, range(len(tokens)), strict=True)), merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == control]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def _config(reader: GGUFReader) -> dict[str, Any]:
    def field(name: str) -> Any:
        return reader.fields[name].contents()

    return {
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": field("llama.attention.head_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": field("llama.rope.freq_base"),
        "max_position_embeddings": field("llama.context_length"),
        "vocab_size": field("llama.vocab_size"),
    }


def _checkpoint_name(name: str) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}"


def _natural_order(
    name: str, values: NDArray[np.float32], config: dict[str, Any]
) -> NDArray[np.float32]:
    """Undo the llama architecture's row order of q and k: pairs (i, i + D/2) lie side by side."""
    if ".attn_q." in name:
        heads = config["num_attention_heads"]
    elif ".attn_k." in name:
        heads = config["num_key_value_heads"]
    else:
        return values
    half = values.shape[0] // heads // 2
    return values.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(values.shape)
