"""Routing: p = softmax(logits); the k largest p, ties to the lower expert   (Shazeer et al. 2017).

Experts are ordered by logit, best first, so that none is lost where softmax rounds two to one
value. `route` chooses for each row; `group_rows` then sorts the pairs {row, rank} by expert.
"""

from __future__ import annotations

from typing import Final

from jit_kernels.dsl import (
    Array,
    Value,
    Variable,
    VectorIndex,
    constant,
    exp_nonpositive,
    index,
    lane_indices,
    loop,
    running_sum,
    select,
    vectorized,
    when,
)
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import BOOL, F32, I32, I64

__all__ = ["EXPERT_WORDS", "group_rows", "route"]

EXPERT_WORDS: Final = 3
"""int64 words of an active expert: {expert, first pair, pairs}."""

_LOWEST = -(2**31)
_NAN_KEY = _LOWEST + 1  # below every number, so that NaN logits are chosen last


@kernel
def route(
    rows: Array[I64],
    logits: Array[F32],
    logits_stride: Value[I64],
    num_experts: Value[I64],
    top_k: Value[I64],
    expert_ids: Array[I32],
    expert_weights: Array[F32],
    *,
    renormalise: bool,
) -> None:
    """Write the `top_k` experts of each row and their weights, [R, top_k] both, best first.

    A weight is the expert's share of the softmax over all experts; with `renormalise`, over the
    chosen. A row with a logit that is NaN has NaN weights, and experts that exist.
    """
    first, last = worker().share(rows[0])
    for row in loop(first, last):
        x = logits + row * logits_stride
        ids, weights = expert_ids + row * top_k, expert_weights + row * top_k
        _choose(x, num_experts, top_k, ids)
        largest = x[ids[0].to(I64)]
        terms = running_sum()
        for i in vectorized(num_experts):
            term = exp_nonpositive(x[i] - largest)
            terms += term if i.mask is None else select(i.mask, term, 0.0)
        whole, total = terms.value(), Variable(constant(0.0, F32))
        for rank in loop(top_k):
            share = exp_nonpositive(x.broadcast(ids[rank].to(I64)) - largest).lane(0) / whole
            weights[rank] = share
            total.set(total.get() + share)
        if renormalise:
            for rank in loop(top_k):
                weights[rank] = weights[rank] / total.get()


def _choose(x: Array[F32], count: Value[I64], top_k: Value[I64], ids: Array[I32]) -> None:
    """Write the ids of the `top_k` largest: each is the best that comes after the one before."""
    last_key, last_id = Variable(constant(2**31 - 1, I32)), Variable(constant(-1, I32))
    for rank in loop(top_k):
        best_key, best_id = Variable(constant(_LOWEST, I32, 16)), Variable(constant(0, I32, 16))
        for i in vectorized(count):
            key, own = _order_key(x[i]), lane_indices(I32) + i.base.to(I32)
            behind = last_key.get()
            later = (key < behind) | (key.equals(behind) & (own > last_id.get()))
            better = _within(i, later & (key > best_key.get()))
            best_key.set(select(better, key, best_key.get()))
            best_id.set(select(better, own, best_id.get()))
        key, own = _best_lane(best_key.get(), best_id.get())
        last_key.set(key)
        last_id.set(own)
        ids[rank] = own


def _within(i: VectorIndex, condition: Value[BOOL]) -> Value[BOOL]:
    return condition if i.mask is None else condition & i.mask


def _order_key(x: Value[F32]) -> Value[I32]:
    """Integers that order like the numbers, -0 like 0."""
    bits = (x + 0.0).bits_as(I32)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return select(x.is_nan(), _NAN_KEY, key)


def _best_lane(key: Value[I32], own: Value[I32]) -> tuple[Value[I32], Value[I32]]:
    """The largest key of all lanes, and the lowest id that has it."""
    while key.lanes > 1:
        pairs = (
            (key.halves(), own.halves())
            if key.lanes > 2
            else ((key.lane(0), key.lane(1)), (own.lane(0), own.lane(1)))
        )
        (key_a, key_b), (own_a, own_b) = pairs
        better = (key_b > key_a) | (key_b.equals(key_a) & (own_b < own_a))
        key, own = select(better, key_b, key_a), select(better, own_b, own_a)
    return key, own


@kernel
def group_rows(
    rows: Array[I64],
    expert_ids: Array[I32],
    top_k: Value[I64],
    num_experts: Value[I64],
    cursors: Array[I64],
    num_pairs: Array[I64],
    experts: Array[I64],
    token_rows: Array[I32],
    slots: Array[I32],
) -> None:
    """Sort pairs {row, rank} by expert, those of one expert as they come.

    Writes `num_pairs` {pairs, active experts}, `experts` [active][EXPERT_WORDS], the row of each
    sorted pair, and where each pair of [R, top_k] went. `cursors` is scratch, [num_experts].
    """
    with when(worker().index.equals(0)):
        pairs = rows[0] * top_k
        for expert in loop(num_experts):
            cursors[expert] = 0
        for pair in loop(pairs):
            expert = expert_ids[pair].to(I64)
            cursors[expert] = cursors[expert] + 1
        first, active = Variable(index(0)), Variable(index(0))
        for expert in loop(num_experts):
            count = cursors[expert]
            cursors[expert] = first.get()
            with when(count > 0):
                word = active.get() * EXPERT_WORDS
                experts[word] = expert
                experts[word + 1] = first.get()
                experts[word + 2] = count
                active.set(active.get() + 1)
            first.set(first.get() + count)
        for pair in loop(pairs):
            expert = expert_ids[pair].to(I64)
            place = cursors[expert]
            cursors[expert] = place + 1
            slots[pair] = place.to(I32)
            token_rows[place] = (pair // top_k).to(I32)
        num_pairs[0] = pairs
        num_pairs[1] = active.get()
