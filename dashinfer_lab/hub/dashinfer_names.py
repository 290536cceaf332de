"""Where DashInfer keeps each weight that Hugging Face names; knows no file.

Its matrices lie as [K, N], ours as [N, K]: an output is a column there. Queries, keys and values
are one matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.tensor import TensorInfo

__all__ = ["StoredWeight", "stored_weights"]

_OUTER: Final = {
    "embedding.word_embeddings": "model.embed_tokens.weight",
    "final.layernorm.gamma": "model.norm.weight",
    "lm_head.weight": "lm_head.weight",
}
_INNER: Final = {
    "attention.layernorm.gamma": "input_layernorm.weight",
    "attention.output.dense.weight": "self_attn.o_proj.weight",
    "ffn.layernorm.gamma": "post_attention_layernorm.weight",
    "ffn.intermediate.dense.weight": "mlp.gate_proj.weight",
    "ffn.linear.dense.weight": "mlp.up_proj.weight",
    "ffn.output.dense.weight": "mlp.down_proj.weight",
}
_LAYER: Final = "decoder.layer."
_DERIVED: Final = (".scale", ".zero_point", ".rotary.inv_freq")


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
    infos: Mapping[str, TensorInfo], num_heads: int, num_kv_heads: int
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
        for name, first, count in _parts(stored, outputs, num_heads, num_kv_heads):
            found[name] = StoredWeight(stored, first, count, is_transposed)
    return found


def _parts(
    stored: str, outputs: int, num_heads: int, num_kv_heads: int
) -> Iterator[tuple[str, int, int]]:
    """Yield names with their first output and how many they have."""
    layer, _, inner = stored.removeprefix(_LAYER).partition(".")
    prefix = f"model.layers.{layer}"
    if not stored.startswith(_LAYER):
        yield _OUTER.get(stored, stored), 0, outputs
    elif not inner.startswith("attention.self."):
        yield (f"{prefix}.{_INNER[inner]}" if inner in _INNER else stored), 0, outputs
    else:
        heads = num_heads + 2 * num_kv_heads
        if outputs % heads:
            raise CheckpointError(
                f"{stored} has {outputs} outputs, which {num_heads} heads of queries and "
                f"{num_kv_heads} of keys and values cannot share"
            )
        kind, first = inner.removeprefix("attention.self."), 0
        for part, count in (("q", num_heads), ("k", num_kv_heads), ("v", num_kv_heads)):
            size = count * (outputs // heads)
            yield f"{prefix}.self_attn.{part}_proj.{kind}", first, size
            first += size
