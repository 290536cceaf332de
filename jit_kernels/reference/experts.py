"""Mixture of experts in NumPy: routing, grouping and the sum, with the kernels' roundings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import exp, fma, sigmoid, tree_sum

__all__ = ["Groups", "combine_experts", "group_rows", "route"]

F32 = NDArray[np.float32]


def route(logits: F32, top_k: int, *, renormalise: bool) -> tuple[NDArray[np.int32], F32]:
    """Ids and weights [R, top_k] of the best experts by logits [R, E], ties to the lower id."""
    with np.errstate(invalid="ignore", over="ignore"):
        order = np.argsort(-logits, axis=1, kind="stable")  # NaN last, -0 like 0
        ids = order[:, :top_k]
        largest = np.take_along_axis(logits, ids[:, :1], axis=1)
        chosen = exp(np.take_along_axis(logits, ids, axis=1) - largest)
        weights = chosen / tree_sum(exp(logits - largest))[:, None]
        if renormalise:
            total = np.zeros(len(logits), np.float32)
            for rank in range(top_k):
                total = total + weights[:, rank]
            weights = weights / total[:, None]
    return ids.astype(np.int32), weights


class Groups(NamedTuple):
    """Pairs {row, rank} sorted by expert, see the kernel."""

    experts: NDArray[np.int64]
    """[active, 3]: expert, first pair, pairs."""
    token_rows: NDArray[np.int32]
    """[R * top_k]"""
    slots: NDArray[np.int32]
    """[R, top_k]"""


def group_rows(ids: NDArray[np.int32]) -> Groups:
    """Sort the pairs of `ids` [R, top_k] by expert, those of one expert as they come."""
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    slots = np.empty(flat.size, np.int32)
    slots[order] = np.arange(flat.size)
    found, first, count = np.unique(flat[order], return_index=True, return_counts=True)
    experts = np.stack([found, first, count], axis=1).astype(np.int64)
    return Groups(experts, (order // ids.shape[1]).astype(np.int32), slots.reshape(ids.shape))


def combine_experts(
    outputs: F32,
    slots: NDArray[np.int32],
    weights: F32,
    shared: tuple[F32, F32] | None = None,
    residual: F32 | None = None,
) -> F32:
    """Sum outputs [pairs, N] by rank; `shared` is {output [R, N], gate logit [R]}."""
    total = np.zeros((len(slots), outputs.shape[1]), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for rank in range(slots.shape[1]):
            total = fma(weights[:, rank, None], outputs[slots[:, rank]], total)
        if shared is not None:
            total = fma(sigmoid(shared[1])[:, None], shared[0], total)
    return total if residual is None else total + residual
