"""Families' tiny checkpoints as GGUF files, as llama.cpp's converters write them.

Names are those of gguf's own map from checkpoints; what converters change beside, and the keys they
write, is written here anew. Shares nothing with the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize
from numpy.typing import NDArray

from tests.hub.tiny_models import interleaved
from tests.model.case_sizes import HEAD_DIM, HEADS, KV_HEADS, LAYERS, VOCAB
from tests.model.family_cases import CASES, FamilyCase

__all__ = ["BAICHUAN", "GGUF_CASES", "GgufCase", "write_family_gguf"]

Array = NDArray[np.float32]
Tensors = dict[str, Array]


@dataclass(frozen=True, slots=True)
class GgufCase:
    """A checkpoint, and how a converter keeps it."""

    case: FamilyCase
    arch: MODEL_ARCH
    change: Callable[[Tensors], Iterator[tuple[str, Array]]] = lambda tensors: iter(tensors.items())
    keys: Mapping[str, object] = field(default_factory=dict[str, object])
    """Metadata beside the sizes, without the architecture's name."""

    def __str__(self) -> str:
        return self.case.name


def case_of(name: str, **changes: Any) -> FamilyCase:
    return replace(next(case for case in CASES if case.name == name), **changes)


def _paired(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """Queries and keys as Llama's converter orders their rows; experts stacked."""
    for name, tensor in _stacked(tensors, "block_sparse_moe", "feed_forward"):
        heads = HEADS if "q_proj" in name else KV_HEADS
        yield name, interleaved(tensor, heads) if "q_proj" in name or "k_proj" in name else tensor


def _shifted(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """Gemma's norms, to which its converter adds 1."""
    for name, tensor in tensors.items():
        yield name, tensor + np.float32(1) if name.endswith("norm.weight") else tensor


def _stacked(
    tensors: Tensors, block: str = "mlp", renamed: str = "mlp"
) -> Iterator[tuple[str, Array]]:
    """Every matrix of experts in one tensor [E, N, K]."""
    stacks: dict[str, list[Array]] = {}
    for name, tensor in tensors.items():
        before, found, after = name.partition(f".{block}.experts.")
        if not found:
            yield name, tensor
        elif not after[0].isdigit():  # transformers 5 stacks them, gate and up in one
            halves = np.split(tensor, 2, axis=1) if "gate_up" in after else [tensor]
            parts = ("gate_proj", "up_proj") if len(halves) == 2 else ("down_proj",)
            for part, half in zip(parts, halves, strict=True):
                yield f"{before}.{renamed}.experts.{part}.weight", half
        else:
            stacks.setdefault(f"{before}|{after.partition('.')[2]}", []).append(tensor)
    for name, matrices in stacks.items():
        before, _, after = name.partition("|")
        owner = before.removeprefix("model.") if renamed != block else before
        yield f"{owner}.{renamed}.experts.{after}", np.stack(matrices)


def _internlm2(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """Each group of wqkv is its queries, its key and its value."""
    for name, tensor in tensors.items():
        before, found, suffix = name.partition("attention.wqkv.")
        if not found:
            yield name, tensor
            continue
        groups = tensor.reshape(KV_HEADS, HEADS // KV_HEADS + 2, HEAD_DIM, *tensor.shape[1:])
        parts = {"wq": groups[:, :-2], "wk": groups[:, -2:-1], "wv": groups[:, -1:]}
        for part, rows in parts.items():
            flat = rows.reshape(-1, *tensor.shape[1:])
            heads = {"wq": HEADS, "wk": KV_HEADS}.get(part)
            theirs = f"{before.replace('attention.', '')}attention.{part}.{suffix}"
            yield theirs, interleaved(flat, heads) if heads else flat


def _baichuan(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    for name, tensor in tensors.items():
        before, found, suffix = name.partition("W_pack.")
        if not found:
            yield name, tensor
            continue
        query, key, value = np.split(tensor, 3)
        yield f"{before}q_proj.{suffix}", interleaved(query, 6)
        yield f"{before}k_proj.{suffix}", interleaved(key, 6)
        yield f"{before}v_proj.{suffix}", value


def _unprefixed(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    for name, tensor in tensors.items():
        yield name.removeprefix("transformer."), tensor


def _scaled_by_head(name: str) -> FamilyCase:
    """Gemma's case, its scores scaled by the head's size: a GGUF file has no key for another."""
    case = case_of(name)
    return replace(case, config={**case.config, "query_pre_attn_scalar": HEAD_DIM})


def _long_rope(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    yield from tensors.items()
    scaling = _PHI4.config["rope_scaling"]
    for kind in ("long", "short"):
        yield f"rope_factors_{kind}.weight", np.array(scaling[f"{kind}_factor"], np.float32)


_PHI4 = case_of("phi3 of a part of each head, with LongRoPE, tied")
_PHI4_SCALING = {
    "rope.scaling.original_context_length": 100, "rope.scaling.attn_factor": 1.0973240098
}  # fmt: skip
_QWEN2_MOE = case_of("qwen2_moe")
_GEMMA3_LOCAL = {"rope.freq_base_swa": 300.0, "attention.sliding_window_pattern": 2}

GGUF_CASES = (
    GgufCase(case_of("llama, linear"), MODEL_ARCH.LLAMA, _paired),
    GgufCase(case_of("llama, yarn"), MODEL_ARCH.LLAMA, _paired),
    GgufCase(case_of("mistral"), MODEL_ARCH.LLAMA, _paired),
    GgufCase(case_of("mixtral"), MODEL_ARCH.LLAMA, _paired),
    GgufCase(case_of("qwen2"), MODEL_ARCH.QWEN2),
    GgufCase(case_of("qwen3"), MODEL_ARCH.QWEN3),
    GgufCase(
        replace(
            _QWEN2_MOE,
            config={**_QWEN2_MOE.config, "decoder_sparse_step": 1},
            layer=_QWEN2_MOE.last or {},
        ),
        MODEL_ARCH.QWEN2MOE, _stacked,
    ),
    GgufCase(
        case_of(
            "qwen3_moe", config={**case_of("qwen3_moe").config, "mlp_only_layers": []}, last=None
        ),
        MODEL_ARCH.QWEN3MOE, _stacked,
    ),
    GgufCase(_scaled_by_head("gemma2"), MODEL_ARCH.GEMMA2, _shifted),
    GgufCase(_scaled_by_head("gemma3"), MODEL_ARCH.GEMMA3, _shifted, _GEMMA3_LOCAL),
    GgufCase(case_of("phi3"), MODEL_ARCH.PHI3),
    GgufCase(_PHI4, MODEL_ARCH.PHI3, _long_rope, _PHI4_SCALING),
    GgufCase(case_of("glm"), MODEL_ARCH.CHATGLM),
    GgufCase(case_of("chatglm"), MODEL_ARCH.CHATGLM, _unprefixed),
    GgufCase(case_of("glm4, tied"), MODEL_ARCH.GLM4),
    GgufCase(case_of("olmo2"), MODEL_ARCH.OLMO2),
    GgufCase(case_of("internlm2"), MODEL_ARCH.INTERNLM2, _internlm2),
    GgufCase(case_of("internlm2 with biases"), MODEL_ARCH.INTERNLM2, _internlm2),
)  # fmt: skip
BAICHUAN = GgufCase(case_of("baichuan 7B"), MODEL_ARCH.BAICHUAN, _baichuan)


def write_family_gguf(
    given: GgufCase, path: Path, kind: GGMLQuantizationType = GGMLQuantizationType.F32
) -> Path:
    """Write the checkpoint of `given`, without a vocabulary, matrices as `kind` where they fit."""
    writer = GGUFWriter(path, "")
    writer.arch = given.arch.name.lower().replace("_", "")
    writer.add_architecture()
    for key, value in {**_sizes(given.case.whole_config()), **given.keys}.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{writer.arch}.{key}", value)
    names = get_tensor_name_map(given.arch, LAYERS)
    for name, tensor in given.change(given.case.tensors()):
        stem, dot, suffix = name.rpartition(".")
        theirs = names.get_name(stem if suffix in ("weight", "bias") else name)
        assert theirs is not None, name
        if theirs.endswith("ffn_gate_inp_shexp"):
            tensor = tensor.reshape(-1)
        stored = np.ascontiguousarray(tensor)
        if tensor.ndim > 1 and tensor.shape[-1] % 32 == 0:
            writer.add_tensor(theirs + dot + suffix, quantize(stored, kind), raw_dtype=kind)
        else:
            writer.add_tensor(theirs + dot + suffix, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that converters write of a config.json."""

    def first(*keys: str) -> Any:
        return next((config[key] for key in keys if config.get(key) is not None), None)

    heads = first("num_attention_heads")
    head_dim = first("head_dim", "kv_channels") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial is None:
        partial = 0.5 if config["model_type"] in ("glm", "chatglm") else 1.0
    kind = {"linear": "linear", "yarn": "yarn"}.get(scaling.get("rope_type", scaling.get("type")))
    sizes = {
        "vocab_size": VOCAB,
        "context_length": first("max_position_embeddings", "seq_length"),
        "embedding_length": config["hidden_size"],
        "feed_forward_length": first("intermediate_size", "ffn_hidden_size"),
        "block_count": first("num_hidden_layers", "num_layers"),
        "attention.head_count": heads,
        "attention.head_count_kv": first("num_key_value_heads", "multi_query_group_num") or heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": first("rms_norm_eps", "layernorm_epsilon"),
        "rope.dimension_count": int(head_dim * partial),
        "rope.freq_base": float(
            rope.get("rope_theta") or first("rope_theta") or 10000 * config.get("rope_ratio", 1)
        ),
        "rope.scaling.type": kind,
        "rope.scaling.factor": scaling.get("factor") if kind else None,
        "rope.scaling.original_context_length": scaling.get("original_max_position_embeddings"),
        "expert_count": first("num_local_experts", "num_experts"),
        "expert_used_count": first("num_experts_per_tok"),
        "expert_feed_forward_length": first("moe_intermediate_size"),
        "expert_shared_feed_forward_length": first("shared_expert_intermediate_size"),
    }
    if config["model_type"].startswith(("gemma", "phi")):
        sizes["attention.sliding_window"] = config["sliding_window"]
    if config["model_type"] == "gemma2":
        sizes |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return {key: value for key, value in sizes.items() if value is not None}
