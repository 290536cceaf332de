"""Finds each weight a graph declares in a checkpoint; knows nothing of how weights are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.graph import ModelGraph, WeightDeclaration
from dashinfer_lab.hub.checkpoint import Checkpoint

__all__ = ["Piece", "match_weights", "row_blocks"]

_PREFIX = "model."
_HEADS = ("lm_head.weight", "output.weight", "transformer.output_layer.weight")
_FLOATS = {"float32", "float16", "bfloat16"}
_BLOCK_BYTES = 16 << 20
_RENAMED = ((".block_sparse_moe.", ".mlp."),)
"""Parts of names that transformers 5 has otherwise than checkpoints."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A weight, or one expert's matrix of it, and the checkpoint's tensor that holds it.

    tensor: its name there, None where it is missing.  expert: of a tensor [E, rows, K], the slice.
    """

    weight: WeightDeclaration
    tensor: str | None
    expert: int | None = None


def match_weights(graph: ModelGraph, checkpoint: Checkpoint) -> Mapping[str, tuple[Piece, ...]]:
    """Return the pieces of every weight that `graph` declares, each with its tensor.

    Names may lack the leading "model.". Experts are one tensor each or, as transformers 5 has
    them, stacked in one. Rotary frequencies and a head equal to the embedding it is
    tied to are ignored. Raises CheckpointError listing every tensor that is missing, left over or
    of another shape.
    """
    available = list(checkpoint.names())
    present = set(available)
    matched = {weight.name: tuple(_pieces(weight, present)) for weight in graph.weights}
    pieces = [piece for each in matched.values() for piece in each]
    absent = [piece.weight.checkpoint_name for piece in pieces if piece.tensor is None]
    missing = list(dict.fromkeys(absent))
    used = {piece.tensor for piece in pieces}
    extra = [n for n in available if n not in used and not _is_ignorable(n, graph)]
    wrong = list(dict.fromkeys(_misfits(pieces, graph, checkpoint)))
    if missing or extra or wrong:
        parts = [
            _count_and_list("tensors are missing", missing),
            _count_and_list("tensors are not known to the architecture", extra),
            _count_and_list("tensors have another shape or type", wrong),
        ]
        raise CheckpointError(
            f"{checkpoint.source} does not fit model type {graph.config.model_type!r}: "
            + "; ".join(part for part in parts if part)
        )
    for weight in graph.weights:
        if weight.role == "tied":
            (embedding,) = matched[weight.name]
            for head in present.intersection(_HEADS):
                _require_tied(checkpoint, str(embedding.tensor), head)
    return matched


def row_blocks(shape: tuple[int, ...], multiple: int) -> Iterator[slice]:
    """Cut the rows of a tensor into slices of some megabytes, each a multiple of `multiple`."""
    row_bytes = 4 * max(1, int(np.prod(shape[1:])))
    step = max(1, _BLOCK_BYTES // row_bytes // multiple) * multiple
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _pieces(weight: WeightDeclaration, present: set[str]) -> Iterator[Piece]:
    """Yield what a weight is read as: whole, or expert by expert."""
    if weight.experts is None:
        yield Piece(weight, _spelling(weight.checkpoint_name, present))
        return
    stacked = _spelling(weight.experts.stacked.name, present)
    for expert in range(weight.shape[0]):
        matrix = weight.expert(expert, stacked=stacked is not None)
        if stacked is None:
            yield Piece(matrix, _spelling(matrix.checkpoint_name, present))
        else:
            yield Piece(matrix, stacked, expert)


def _spelling(name: str, present: set[str]) -> str | None:
    """Return how the checkpoint spells a declared name."""
    renamed = [name.replace(declared, spelt) for declared, spelt in _RENAMED]
    candidates = [spelling for n in (name, *renamed) for spelling in (n, n.removeprefix(_PREFIX))]
    return next((spelling for spelling in candidates if spelling in present), None)


def _is_ignorable(name: str, graph: ModelGraph) -> bool:
    tied_head = graph.config.tie_word_embeddings and name in _HEADS
    return tied_head or name.endswith((".rotary_emb.inv_freq", ".rotary_pos_emb.inv_freq"))


def _misfits(pieces: Iterable[Piece], graph: ModelGraph, checkpoint: Checkpoint) -> Iterator[str]:
    num_experts = graph.config.experts.count if graph.config.experts else 0
    for piece in pieces:
        if piece.tensor is None:
            continue
        info = checkpoint.info(piece.tensor)
        shape = piece.weight.checkpoint_shape
        if piece.expert is not None:
            shape = (num_experts, *shape)
        if tuple(info.shape) != shape or info.dtype not in _FLOATS:
            yield (
                f"{piece.weight.checkpoint_name} is {list(info.shape)} {info.dtype}, "
                f"expected {list(shape)} {' or '.join(sorted(_FLOATS))}"
            )


def _count_and_list(what: str, names: list[str]) -> str:
    return f"{len(names)} {what}: {', '.join(names)}" if names else ""


def _require_tied(checkpoint: Checkpoint, embedding: str, head: str) -> None:
    """Refuse a head that differs from the embedding the config ties it to."""
    shape = tuple(checkpoint.info(embedding).shape)
    same = tuple(checkpoint.info(head).shape) == shape
    for rows in row_blocks(shape, 1) if same else ():
        same = same and _equal(checkpoint.read(head, rows), checkpoint.read(embedding, rows))
    if not same:
        raise CheckpointError(
            f"{checkpoint.source}: config ties the head to the embedding, but {head} differs from "
            f"{embedding}; set tie_word_embeddings to false in config.json if the head is meant"
        )


def _equal(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(left, right, equal_nan=False)
