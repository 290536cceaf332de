"""Which rows of which GGUF tensors are a checkpoint's weights; reads none of them.

Experts that are stacked are named one by one, and what a converter took apart or joined is put
back by rows. `gguf_architectures` has the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.gguf_architectures import GgufArchitecture
from dashinfer_lab.hub.gguf_header import GgufTensor

__all__ = ["GgufRows", "GgufWeight", "checkpoint_weights"]

HeadsKey = Literal["num_attention_heads", "num_key_value_heads"]

_OUTER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_HEADS_OF: dict[str, HeadsKey] = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
_QKV = ("attn_q", "attn_k", "attn_v")
_EXPERT_LIMIT = 1 << 12
_SMALLEST_EXPERT_BYTES = 128  # of less, a list of them would outgrow the file many times


@dataclass(frozen=True, slots=True)
class GgufRows:
    """Rows of a GGUF tensor, one after the other, that are rows of a weight.

    tensor: shape, offset and bytes of these rows alone.  heads: the setting that counts the heads
    whose rows are paired, if they are.  added: what the converter added to every element.
    """

    tensor: GgufTensor
    heads: HeadsKey | None = None
    added: float = 0.0


@dataclass(frozen=True, slots=True)
class GgufWeight:
    """A weight as a checkpoint names it: rows of one tensor or more, one after the other."""

    parts: tuple[GgufRows, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements, outermost first."""
        first = self.parts[0].tensor.shape
        return (sum(part.tensor.shape[0] for part in self.parts), *first[1:])


def checkpoint_weights(
    architecture: GgufArchitecture, tensors: Mapping[str, GgufTensor], heads: tuple[object, object]
) -> dict[str, GgufWeight]:
    """Return the weights by the checkpoint's names, in the file's order; unknown names stay.

    heads: numbers of attention heads and of key-value heads, as the metadata has them.  Raises
    CheckpointError for tensors that do not fit together.
    """
    found: dict[str, dict[str, GgufRows]] = {}
    for name, tensor in tensors.items():
        for stem, weight, rows in _named(architecture, name, tensor, heads):
            if stem in found.setdefault(weight, {}):
                raise CheckpointError(f"the GGUF file holds {weight!r} twice, once as {name!r}")
            found[weight][stem] = rows
    return {name: GgufWeight(_joined(name, by_stem)) for name, by_stem in found.items()}


def _joined(name: str, by_stem: Mapping[str, GgufRows]) -> tuple[GgufRows, ...]:
    """Return the parts of a weight, queries before keys before values."""
    if len(by_stem) > 1 and not by_stem.keys() <= set(_QKV):
        names = ", ".join(repr(rows.tensor.name) for rows in by_stem.values())
        raise CheckpointError(f"the GGUF file holds {name!r} twice, as {names:.300}")
    order = _QKV if len(by_stem) > 1 else tuple(by_stem)
    parts = [by_stem[stem] for stem in order if stem in by_stem]
    if len({part.tensor.shape[1:] for part in parts}) > 1:
        shapes = ", ".join(str(list(part.tensor.shape)) for part in parts)
        raise CheckpointError(f"the parts of {name!r} in the GGUF file do not fit: {shapes}")
    return tuple(parts)


def _named(
    architecture: GgufArchitecture,
    name: str,
    tensor: GgufTensor,
    heads: tuple[object, object],
) -> Iterator[tuple[str, str, GgufRows]]:
    """Yield stem, the checkpoint's name and rows of each weight that lies in a tensor."""
    layer = re.fullmatch(r"blk\.(\d+)\.([a-z_]+)(?:\.(\d{1,9}))?\.(weight|bias)", name)
    stem, _, suffix = name.rpartition(".")
    if layer is None:
        outer = _OUTER_NAMES.get(stem)
        yield stem, f"{outer}.{suffix}" if outer else name, _rows(architecture, stem, tensor)
        return
    _, stem, expert, suffix = layer.groups()
    names, prefix = architecture.layer_names, f"model.layers.{layer[1]}"
    stacked = names.get(f"{stem}_exps") if expert else names.get(stem)
    if stem == "attn_qkv" and stem not in names:
        for part, rows in zip(_QKV, _taken_apart(name, tensor, heads), strict=True):
            yield part, f"{prefix}.{names[part]}.{suffix}", GgufRows(rows)
    elif stacked is None:
        yield name, name, GgufRows(tensor)
    elif expert:
        yield stem, f"{prefix}.{stacked.format(int(expert))}.{suffix}", GgufRows(tensor)
    elif "{}" in stacked:
        for number, matrix in enumerate(_stacked(name, tensor)):
            yield stem, f"{prefix}.{stacked.format(number)}.{suffix}", GgufRows(matrix)
    else:
        yield stem, f"{prefix}.{stacked}.{suffix}", _rows(architecture, stem, tensor)


def _rows(architecture: GgufArchitecture, stem: str, tensor: GgufTensor) -> GgufRows:
    if stem == "ffn_gate_inp_shexp" and len(tensor.shape) == 1:  # one row, kept as a vector
        tensor = replace(tensor, shape=(1, *tensor.shape))
    heads = _HEADS_OF.get(stem) if architecture.pairs_heads else None
    return GgufRows(tensor, heads, architecture.added_to_norms if stem.endswith("norm") else 0.0)


def _stacked(name: str, tensor: GgufTensor) -> Iterator[GgufTensor]:
    """Yield the matrix of each expert of a tensor [E, N, K]."""
    if len(tensor.shape) != 3:
        raise CheckpointError(f"{name!r} has shape {list(tensor.shape)}, expected that of experts")
    num_bytes = tensor.shape[1] * tensor.row_bytes
    if tensor.shape[0] > _EXPERT_LIMIT or num_bytes < _SMALLEST_EXPERT_BYTES:
        raise CheckpointError(
            f"{name!r} holds {tensor.shape[0]} experts of {num_bytes} bytes each; at most "
            f"{_EXPERT_LIMIT} of at least {_SMALLEST_EXPERT_BYTES} make sense"
        )
    for expert in range(tensor.shape[0]):
        offset = tensor.offset + expert * num_bytes
        yield replace(tensor, shape=tensor.shape[1:], offset=offset, num_bytes=num_bytes)


def _taken_apart(
    name: str, tensor: GgufTensor, heads: tuple[object, object]
) -> Iterator[GgufTensor]:
    """Yield the rows of queries, keys and values of a tensor that has them in this order."""
    num_heads, num_kv_heads = heads
    if not isinstance(num_heads, int) or not isinstance(num_kv_heads, int):
        raise CheckpointError(f"{name!r}: the GGUF metadata does not say how many heads there are")
    total = num_heads + 2 * num_kv_heads
    rows = tensor.shape[0]
    if min(num_heads, num_kv_heads) < 1 or rows % total or tensor.num_bytes % rows:
        raise CheckpointError(
            f"{name!r} has {rows} rows, which {num_heads} heads and {num_kv_heads} of keys and of "
            "values cannot share"
        )
    row_bytes, start = tensor.num_bytes // rows, 0
    for count in (num_heads, num_kv_heads, num_kv_heads):
        taken = count * rows // total
        shape = (taken, *tensor.shape[1:])
        num_bytes = taken * row_bytes
        yield replace(
            tensor,
            shape=shape,
            offset=tensor.offset + start * row_bytes,
            num_bytes=num_bytes,
            row_bytes=num_bytes // prod(shape[:-1]),
        )
        start += taken
