"""Attention in NumPy with the kernel's bits: segments of 128 keys, fixed trees, one merge formula.

Every fma, product and sum is where the kernel has it, so results are compared bit for bit. Knows
nothing of pages, tiles or workers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import exp, fma, tree_sum

__all__ = ["SEGMENT_KEYS", "State", "attend", "attend_segment", "merge"]

SEGMENT_KEYS = 128
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


class State(NamedTuple):
    """A softmax in progress: largest score m and sum l of e^(s - m), [R, H], and o, [R, H, D].

    `o` is the sum of e^(s - m) v.
    """

    m: Floats
    total: Floats
    o: Floats


def attend(
    queries: Floats, keys: Floats, values: Floats, positions: NDArray[np.int64], scale: float
) -> Floats:
    """softmax(q k^T * scale + causal mask) v of queries [R, H, D] over keys, values [n, KV, D].

    Row r sees the keys 0 .. positions[r].
    """
    group = queries.shape[1] // keys.shape[1]
    keys, values = (np.repeat(each, group, axis=1) for each in (keys, values))
    shape = queries.shape[:2]
    state = State(
        np.full(shape, -np.inf, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(queries.shape, np.float32),
    )
    for start in range(0, len(keys), SEGMENT_KEYS):
        part = slice(start, start + SEGMENT_KEYS)
        # Later rows alone are left: the others see nothing from here on.
        rows = np.flatnonzero(positions >= start)
        sees = positions[rows, None] >= np.arange(start, start + len(keys[part]))
        new = attend_segment(queries[rows], keys[part], values[part], sees, scale)
        merged = merge(State(*(each[rows] for each in state)), new)
        for each, after in zip(state, merged, strict=True):
            each[rows] = after
    with np.errstate(all="ignore"):
        return state.o / state.total[..., None]


def attend_segment(
    queries: Floats, keys: Floats, values: Floats, sees: Flags, scale: float
) -> State:
    """The softmax of one segment from (-inf, 0, 0); `sees` is [R, n].

    A score is one fma chain over d, then scaled. What a row does not see is no part of its sums.
    """
    with np.errstate(all="ignore"):
        scores = np.zeros((*queries.shape[:2], len(keys)), np.float32)
        for d in range(queries.shape[2]):
            scores = fma(queries[..., d, None], keys[..., d].T, scores)
        masked = np.where(sees[:, None], scores * np.float32(scale), np.float32(-np.inf))
        m = masked.max(axis=2)
        p = exp(masked - m[..., None])
        o = np.zeros_like(queries)
        for key in range(len(keys)):
            after = fma(p[..., key, None], values[key], o)
            o = np.where(sees[:, key, None, None], after, o)
        return State(m, tree_sum(p), o)


def merge(run: State, new: State) -> State:
    """M = max(m, m'); l = l e^(m - M) + l' e^(m' - M), o likewise, each with one fma."""
    with np.errstate(all="ignore"):
        m = np.maximum(run.m, new.m)
        old_weight, new_weight = exp(run.m - m), exp(new.m - m)
        total = fma(run.total, old_weight, new.total * new_weight)
        o = fma(run.o, old_weight[..., None], new.o * new_weight[..., None])
        return State(m, total, o)
