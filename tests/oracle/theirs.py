"""Opens the families' tiny checkpoints in transformers; one it has no class for is re-laid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from tests.model.family_cases import HEAD_DIM, HEADS, KV_HEADS, FamilyCase

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["transformers_model"]


def transformers_model(case: FamilyCase, directory: Path) -> PreTrainedModel:
    """Write the checkpoint into `directory`; open it in float32, every tensor used."""
    from transformers import AutoModelForCausalLM

    case.write(directory)
    if case.whole_config()["model_type"] == "internlm2":
        directory = _as_llama(case, directory / "as_llama")
    model, report = AutoModelForCausalLM.from_pretrained(
        directory, dtype="float32", attn_implementation="eager", output_loading_info=True
    )
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"{case.name}: transformers expects other tensors: {report}")
    return model.eval()


_LLAMA_NAMES = {
    "tok_embeddings": "embed_tokens",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.w2": "mlp.down_proj",
    "output.weight": "lm_head.weight",
}


def _as_llama(case: FamilyCase, directory: Path) -> Path:
    """Lay InternLM 2 out as a Llama: wqkv holds, for each key head, its queries, key and value."""
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in case.tensors().items():
        if "attention.wqkv" not in name:
            for theirs, llamas in _LLAMA_NAMES.items():
                name = name.replace(theirs, llamas)
            tensors[name] = tensor
            continue
        grouped = tensor.reshape(KV_HEADS, HEADS // KV_HEADS + 2, HEAD_DIM, *tensor.shape[1:])
        parts = {"q": grouped[:, :-2], "k": grouped[:, -2], "v": grouped[:, -1]}
        for part, rows in parts.items():
            target = name.replace("attention.wqkv", f"self_attn.{part}_proj")
            tensors[target] = np.ascontiguousarray(rows.reshape(-1, *tensor.shape[1:]))
    config = case.whole_config()
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    config["attention_bias"] = config.pop("bias")
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    return directory
