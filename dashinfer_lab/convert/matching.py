"""Finds each weight a graph declares in a checkpoint; knows nothing of how weights are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.graph import ModelGraph, WeightDeclaration
from dashinfer_lab.hub.checkpoint import Checkpoint

__all__ = ["match_weights", "row_blocks"]

_PREFIX = "model."
_HEADS = ("lm_head.weight", "transformer.output_layer.weight")
_FLOATS = {"float32", "float16", "bfloat16"}
_BLOCK_BYTES = 16 << 20


def match_weights(graph: ModelGraph, checkpoint: Checkpoint) -> Mapping[str, str]:
    """Return the checkpoint's name of every weight that `graph` declares.

    Names may lack the leading "model.". Rotary frequencies and a head equal to the embedding it is
    tied to are ignored. Raises CheckpointError listing every tensor that is missing, left over or
    of another shape.
    """
    available = list(checkpoint.names())
    present = set(available)
    found = {w.name: _spelling(w.checkpoint_name, present) for w in graph.weights}
    absent = [w.checkpoint_name for w in graph.weights if found[w.name] is None]
    missing = list(dict.fromkeys(absent))
    matched = {name: spelling for name, spelling in found.items() if spelling is not None}
    used = set(matched.values())
    extra = [n for n in available if n not in used and not _is_ignorable(n, graph)]
    wrong = list(dict.fromkeys(_misfits(graph.weights, matched, checkpoint)))
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
            for head in present.intersection(_HEADS):
                _require_tied(checkpoint, matched[weight.name], head)
    return matched


def row_blocks(shape: tuple[int, ...], multiple: int) -> Iterator[slice]:
    """Cut the rows of a tensor into slices of some megabytes, each a multiple of `multiple`."""
    row_bytes = 4 * max(1, int(np.prod(shape[1:])))
    step = max(1, _BLOCK_BYTES // row_bytes // multiple) * multiple
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _spelling(name: str, present: set[str]) -> str | None:
    return next((n for n in (name, name.removeprefix(_PREFIX)) if n in present), None)


def _is_ignorable(name: str, graph: ModelGraph) -> bool:
    tied_head = graph.config.tie_word_embeddings and name in _HEADS
    return tied_head or name.endswith((".rotary_emb.inv_freq", ".rotary_pos_emb.inv_freq"))


def _misfits(
    weights: Iterable[WeightDeclaration], matched: Mapping[str, str], checkpoint: Checkpoint
) -> Iterator[str]:
    for weight in weights:
        if weight.name in matched:
            info = checkpoint.info(matched[weight.name])
            shape = weight.checkpoint_shape
            if tuple(info.shape) != shape or info.dtype not in _FLOATS:
                yield (
                    f"{weight.checkpoint_name} is {list(info.shape)} {info.dtype}, "
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
