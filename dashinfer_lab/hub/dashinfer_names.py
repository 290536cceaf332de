"""Where DashInfer keeps each weight that Hugging Face names; knows no file.

Its matrices lie as [K, N], ours as [N, K]: an output is a column there. Queries, keys and values
are one matrix, as ChatGLM's and Qwen's checkpoints have it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.tensor import TensorInfo

__all__ = ["NAMES", "CheckpointNames", "StoredWeight", "stored_weights"]

_LAYER: Final = "decoder.layer."
_FUSED: Final = "attention.self."
_DERIVED: Final = (".scale", ".zero_point", ".rotary.inv_freq")


@dataclass(frozen=True, slots=True)
class CheckpointNames:
    """What a family's own checkpoints call the weights.

    inner: of a layer, by what follows the layer's number in DashInfer's name.  fused: the queries,
    keys and values, None where each of them has a matrix.
    """

    embedding: str
    layers: str
    norm: str
    head: str
    inner: Mapping[str, str]
    fused: str | None = None

    def outer(self, stored: str) -> str:
        """Name of what is outside the layers; one that is not known keeps its own."""
        known = {
            "embedding.word_embeddings": f"{self.embedding}.weight",
            "final.layernorm.gamma": f"{self.norm}.weight",
            "lm_head.weight": f"{self.head}.weight",
        }
        return known.get(stored, stored)


_LLAMA: Final = CheckpointNames(
    "model.embed_tokens", "model.layers", "model.norm", "lm_head",
    {
        "attention.layernorm.gamma": "input_layernorm.weight",
        "attention.output.dense.weight": "self_attn.o_proj.weight",
        "ffn.layernorm.gamma": "post_attention_layernorm.weight",
        "ffn.intermediate.dense.weight": "mlp.gate_proj.weight",
        "ffn.linear.dense.weight": "mlp.up_proj.weight",
        "ffn.output.dense.weight": "mlp.down_proj.weight",
    },
)  # fmt: skip
NAMES: Final[Mapping[str, CheckpointNames]] = {
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "qwen": CheckpointNames(
        "transformer.wte", "transformer.h", "transformer.ln_f", "lm_head",
        {
            "attention.layernorm.gamma": "ln_1.weight",
            "attention.output.dense.weight": "attn.c_proj.weight",
            "ffn.layernorm.gamma": "ln_2.weight",
            "ffn.intermediate.dense1.weight": "mlp.w1.weight",
            "ffn.intermediate.dense2.weight": "mlp.w2.weight",
            "ffn.output.dense.weight": "mlp.c_proj.weight",
        },
        fused="attn.c_attn",
    ),
    "chatglm": CheckpointNames(
        "transformer.embedding.word_embeddings", "transformer.encoder.layers",
        "transformer.encoder.final_layernorm", "transformer.output_layer",
        {
            "attention.layernorm.gamma": "input_layernorm.weight",
            "attention.output.dense.weight": "self_attention.dense.weight",
            "ffn.layernorm.gamma": "post_attention_layernorm.weight",
            "ffn.intermediate.dense.weight": "mlp.dense_h_to_4h.weight",
            "ffn.output.dense.weight": "mlp.dense_4h_to_h.weight",
        },
        fused="self_attention.query_key_value",
    ),
}  # fmt: skip
"""Of the families that are read, by `model_type`."""


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """Rows of one of our weights: entries `first` to `first + count` along the stored outputs.

    is_transposed: the stored outputs are columns.
    """

    stored: str
    first: int
    count: int
    is_transposed: bool


def stored_weights(
    infos: Mapping[str, TensorInfo], names: CheckpointNames, num_heads: int, num_kv_heads: int
) -> dict[str, StoredWeight]:
    """Return every weight under Hugging Face's name; one that is not known keeps its own.

    Raises CheckpointError where queries, keys and values cannot be told apart.
    """
    found: dict[str, StoredWeight] = {}
    for stored, info in infos.items():
        if stored.endswith(_DERIVED):
            continue
        is_transposed = stored.endswith(".weight") and len(info.shape) == 2
        outputs = info.shape[-1 if is_transposed else 0] if info.shape else 0
        for name, first, count in _parts(stored, outputs, names, num_heads, num_kv_heads):
            found[name] = StoredWeight(stored, first, count, is_transposed)
    return found


def _parts(
    stored: str, outputs: int, names: CheckpointNames, num_heads: int, num_kv_heads: int
) -> Iterator[tuple[str, int, int]]:
    """Yield names with their first output and how many they have."""
    layer, _, inner = stored.removeprefix(_LAYER).partition(".")
    prefix, kind = f"{names.layers}.{layer}", inner.removeprefix(_FUSED)
    if not stored.startswith(_LAYER):
        yield names.outer(stored), 0, outputs
    elif not inner.startswith(_FUSED):
        yield (f"{prefix}.{names.inner[inner]}" if inner in names.inner else stored), 0, outputs
    elif names.fused is not None:
        yield f"{prefix}.{names.fused}.{kind}", 0, outputs
    else:
        heads, first = num_heads + 2 * num_kv_heads, 0
        if outputs % heads:
            raise CheckpointError(
                f"{stored} has {outputs} outputs, which {num_heads} heads of queries and "
                f"{num_kv_heads} of keys and values cannot share"
            )
        for part, count in (("q", num_heads), ("k", num_kv_heads), ("v", num_kv_heads)):
            size = count * (outputs // heads)
            yield f"{prefix}.self_attn.{part}_proj.{kind}", first, size
            first += size
