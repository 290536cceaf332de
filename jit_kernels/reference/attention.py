"""Attention in NumPy with the kernel's bits: segments of 128 keys, fixed trees, one merge formula.

Every fma, product and sum is where the kernel has it, so results are compared bit for bit. Over
codes, products are exact sums of integers: see `attention_codes`. Knows nothing of pages, tiles or
workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jit_kernels.kv_layout import LARGEST_WEIGHT_CODE, largest_query_code
from jit_kernels.reference.arithmetic import exp, fma, tanh, tree_sum
from jit_kernels.reference.kv_cache import Stored, codes_of

__all__ = [
    "SEGMENT_KEYS",
    "KeyBias",
    "Scoring",
    "State",
    "alibi_slopes",
    "attend",
    "attend_segment",
    "merge",
]

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


@dataclass(frozen=True, slots=True)
class Scoring:
    """What becomes of q . k: softcap tanh(scale q.k / softcap) + slopes (key - position).

    `slopes` are [H]; a row sees the last `window` keys. None is what a model does without.
    """

    scale: float
    softcap: float | None = None
    slopes: Floats | None = None
    window: int | None = None

    def sees(self, positions: NDArray[np.int64], keys: NDArray[np.int64]) -> Flags:
        """Whether a row sees a key, [R, n]."""
        distance = positions[:, None] - keys
        return (distance >= 0) & (distance < (self.window or np.inf))

    def logits(
        self, products: Floats, positions: NDArray[np.int64], keys: NDArray[np.int64]
    ) -> Floats:
        """What the softmax takes of products [R, H, n]."""
        scores = products * np.float32(self.scale)
        if self.softcap is not None:
            cap = np.float32(self.softcap)
            scores = tanh(scores / cap) * cap
        if self.slopes is not None:
            distance = (keys - positions[:, None]).astype(np.float32)
            scores = fma(self.slopes[:, None], distance[:, None], scores)
        return scores


def attend(
    queries: Floats,
    keys: Stored,
    values: Stored,
    positions: NDArray[np.int64],
    scoring: Scoring,
    key_bias: KeyBias | None = None,
) -> Floats:
    """softmax(logits + causal mask) v of queries [R, H, D] over keys, values [n, KV, D].

    Row r sees the keys up to positions[r], those within the window.
    """
    group = queries.shape[1] // keys.elements.shape[1]
    keys, values = (kept.each(lambda x: np.repeat(x, group, axis=1)) for kept in (keys, values))
    shape = queries.shape[:2]
    state = State(
        np.full(shape, -np.inf, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(queries.shape, np.float32),
    )
    for start in range(0, len(keys.elements), SEGMENT_KEYS):
        part = slice(start, start + SEGMENT_KEYS)
        numbers = np.arange(len(keys.elements))[part]
        rows = np.flatnonzero(scoring.sees(positions, numbers).any(axis=1))
        own_keys, own_values = (kept.each(itemgetter(part)) for kept in (keys, values))
        added = None
        if key_bias is not None:
            added = key_bias.products(queries[rows], start, len(numbers))
        new = attend_segment(
            queries[rows], own_keys, own_values, positions[rows], numbers, scoring, added
        )
        merged = merge(State(*(each[rows] for each in state)), new)
        for each, after in zip(state, merged, strict=True):
            each[rows] = after
    with np.errstate(all="ignore"):
        return state.o / state.total[..., None]


def attend_segment(
    queries: Floats,
    keys: Stored,
    values: Stored,
    positions: NDArray[np.int64],
    numbers: NDArray[np.int64],
    scoring: Scoring,
    added: Floats | None = None,
) -> State:
    """The softmax of one segment, whose keys have these `numbers`, from (-inf, 0, 0).

    A score is one fma chain over d, or of codes a sum of integers, then scaled and so on. What a
    row does not see is no part of its sums.
    """
    with np.errstate(all="ignore"):
        scores = _scores(queries, keys, added)
        sees = scoring.sees(positions, numbers)
        logits = scoring.logits(scores, positions, numbers)
        masked = np.where(sees[:, None], logits, np.float32(-np.inf))
        m = masked.max(axis=2)
        p = exp(masked - m[..., None])
        return State(m, tree_sum(p), _weighed(p, values, sees))


def _scores(queries: Floats, keys: Stored, added: Floats | None) -> Floats:
    """q . k of queries [R, H, D], [R, H, n], what is `added` included."""
    if keys.scales is None:
        return _products(queries, keys.elements.transpose(1, 2, 0))
    codes, query_scales = codes_of(queries, largest_query_code(queries.shape[2]))
    assert query_scales is not None
    sums = np.einsum("rhd,nhd->rhn", codes, keys.elements, dtype=np.float64)
    scales = keys.scales.T * query_scales[..., None]
    products = sums.astype(np.float32)
    return products * scales if added is None else fma(products, scales, added)


def _weighed(p: Floats, values: Stored, sees: Flags) -> Floats:
    """The sum of p v over the keys that a row sees, [R, H, D]."""
    if values.scales is None:
        o = np.zeros((*p.shape[:2], values.elements.shape[2]), np.float32)
        for key in range(p.shape[2]):
            after = fma(p[..., key, None], values.elements[key], o)
            o = np.where(sees[:, key, None, None], after, o)
        return o
    weights = np.where(sees[:, None], p * values.scales.T, np.float32(0))
    codes, scales = codes_of(weights, LARGEST_WEIGHT_CODE)
    assert scales is not None
    sums = np.einsum("rhn,nhd->rhd", codes, values.elements, dtype=np.float64)
    return sums.astype(np.float32) * scales[..., None]


def _products(queries: Floats, keys: Floats) -> Floats:
    """One fma chain over d of queries [R, H, D] and keys [H, D, n], [R, H, n]."""
    products = np.zeros((*queries.shape[:2], keys.shape[-1]), np.float32)
    for d in range(queries.shape[2]):
        products = fma(queries[..., d, None], keys[..., d, :], products)
    return products


@dataclass(frozen=True, slots=True)
class KeyBias:
    """What keys were kept without: `bias` [KV, D], turned by cos, sin [P, D/2] of their positions.

    `angles` [D, 128] are those of a segment's keys from its first.
    """

    bias: Floats
    cos: Floats
    sin: Floats
    angles: Floats

    def products(self, queries: Floats, start: int, count: int) -> Floats:
        """What it adds to queries [R, H, D] times the keys of a segment, [R, H, count]."""
        group = queries.shape[1] // len(self.bias)
        b1, b2 = np.split(np.repeat(self.bias, group, axis=0), 2, axis=-1)
        q1, q2 = np.split(queries, 2, axis=-1)
        a, b = fma(q1, b1, q2 * b2), fma(q2, b1, -(q1 * b2))
        cos, sin = self.cos[start], self.sin[start]
        turned = np.concatenate([fma(a, cos, b * sin), fma(b, cos, -(a * sin))], axis=-1)
        angles = np.broadcast_to(
            self.angles[:, :count], (queries.shape[1], *self.angles.shape[:1], count)
        )
        return _products(turned, angles)


def merge(run: State, new: State) -> State:
    """M = max(m, m'); l = l e^(m - M) + l' e^(m' - M), o likewise, each with one fma."""
    with np.errstate(all="ignore"):
        m = np.maximum(run.m, new.m)
        old_weight, new_weight = exp(run.m - m), exp(new.m - m)
        total = fma(run.total, old_weight, new.total * new_weight)
        o = fma(run.o, old_weight[..., None], new.o * new_weight[..., None])
        return State(m, total, o)


def alibi_slopes(num_heads: int) -> Floats:
    """2^(-8 (h + 1) / n) for n heads, a power of two; then every other of 2n (Press et al.)."""
    power = 1 << (num_heads.bit_length() - 1)

    def geometric(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (head + 1) / count) for head in range(count)]

    slopes = geometric(power) + geometric(2 * power)[0::2]
    return np.array(slopes[:num_heads], np.float32)
