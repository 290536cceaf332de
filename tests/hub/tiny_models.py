"""Tiny Llama checkpoints for the tests of the hub, in both file formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.numpy import save_file

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 64, 96, 4, 2, 16, 291, 2

CONFIG: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 128,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


def weights(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random weights under Hugging Face's names."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (HIDDEN,),
            f"{prefix}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
            f"{prefix}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, INNER),
        }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face name."""
    stem, _, suffix = name.rpartition(".")
    if stem in GGUF_NAMES:
        return f"{GGUF_NAMES[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{suffix}"


def interleaved(weight: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Order rows as llama.cpp's converter does (LlamaModel.permute)."""
    halves = weight.reshape(num_heads, 2, weight.shape[0] // num_heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def byte_characters() -> list[str]:
    """GPT-2's printable stand-ins for the bytes 0 to 255, as the tokenizers library knows them."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


SPECIALS = ["<unk>", "<s>", "</s>", "<|im_end|>"]
WORDS = ["he", "ll", "hell", "hello", "Ġw"]
TOKENS = [*SPECIALS, *byte_characters(), *WORDS]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write_gguf(
    path: Path,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    *,
    architecture: str = "llama",
    pre: str = "smollm",
    tokenizer: bool = True,
    context_length: int = 128,
    extra: dict[str, np.ndarray[Any, Any]] | None = None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Write a tiny GGUF file with matrices stored as `kind`; return the weights before that."""
    writer = GGUFWriter(path, architecture)
    writer.add_license("mit")
    writer.add_context_length(context_length)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    if tokenizer:
        _add_tokenizer(writer, pre)
    originals = weights()
    for name, weight in originals.items():
        stored = weight
        if architecture == "llama" and "q_proj" in name:
            stored = interleaved(weight, HEADS)
        if architecture == "llama" and "k_proj" in name:
            stored = interleaved(weight, KV_HEADS)
        if weight.ndim == 2:
            writer.add_tensor(gguf_name(name), quantize(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), stored)
    for name, weight in (extra or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return originals


def _add_tokenizer(writer: GGUFWriter, pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    padding = [1] * (len(TOKENS) - len(SPECIALS))
    writer.add_token_types([2, *[3] * (len(SPECIALS) - 1), *padding])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(3)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def write_safetensors(
    directory: Path,
    *,
    config: dict[str, object] | None = None,
    tensors: dict[str, np.ndarray[Any, Any]] | None = None,
    num_shards: int = 1,
) -> dict[str, np.ndarray[Any, Any]]:
    """Write a tiny checkpoint directory, in shards with an index where asked."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    written = weights() if tensors is None else tensors
    if num_shards == 1:
        save_file(written, directory / "model.safetensors")
        return written
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        name = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        part = dict(list(written.items())[shard::num_shards])
        save_file(part, directory / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return written
