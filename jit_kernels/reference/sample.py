"""Sampling in NumPy: `probabilities` in float64 by sorting, `sample` with the kernel's bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import exp, log, tree_sum

__all__ = ["Request", "philox", "probabilities", "sample", "uniform", "weights"]

_MASK = 0xFFFFFFFF
_BLOCK = 256
_COARSE_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What one row is drawn with."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    choice: int = 0
    position: int = 0

    def words(self) -> NDArray[np.int64]:
        """The eight words the kernel reads."""
        floats = np.array([self.temperature, self.top_p], np.float32).view(np.uint32)
        seed = np.array([self.seed], np.uint64).view(np.int64)[0]
        words = [floats[0], self.top_k, floats[1], seed, self.choice, self.position, 0, 0]
        return np.array(words, np.int64)


def probabilities(
    x: NDArray[np.float32], temperature: float, top_k: int = 0, top_p: float = 1.0
) -> NDArray[np.float64]:
    """The distribution that the rule describes; temperature above 0."""
    scaled = (x.astype(np.float64) - x.max()) / temperature
    order = np.lexsort((np.arange(len(x)), -x))
    weights = np.exp(scaled[order])
    if 0 < top_k < len(x):
        weights[top_k:] = 0
    if top_p < 1:
        reached = np.cumsum(weights) >= top_p * weights.sum()
        weights[int(np.argmax(reached)) + 1 :] = 0
    result = np.zeros(len(x))
    result[order] = weights / weights.sum()
    return result


def sample(x: NDArray[np.float32], request: Request) -> tuple[int, bool, np.float32]:
    """Token, whether all logits are finite, and log(sum(exp(x)))."""
    if not np.isfinite(x).all():
        return 0, False, np.float32(np.nan)
    logsumexp = x.max() + log(tree_sum(exp(x - x.max())))
    if request.temperature <= 0:
        return int(x.argmax()), True, np.float32(logsumexp)
    return _inverse_cdf(weights(x, request), uniform(request)), True, np.float32(logsumexp)


def weights(x: NDArray[np.float32], request: Request) -> NDArray[np.float32]:
    """exp((x - max) / T), 0 where a filter drops the token."""
    result = exp((x - x.max()) / np.float32(request.temperature))
    if 0 < request.top_k < len(x):
        kept = _kept(x, np.ones_like(x), np.float32(request.top_k))
        result = np.where(kept, result, np.float32(0))
    if request.top_p < 1:
        goal = np.float32(request.top_p) * tree_sum(result)
        kept = _kept(x, result, max(goal, np.float32(2.0**-126)))
        result = np.where(kept, result, np.float32(0))
    return result


def _kept(
    x: NDArray[np.float32], measure: NDArray[np.float32], goal: np.float32
) -> NDArray[np.bool]:
    """The shortest beginning by (logit, id) that measures `goal`, sums as the kernel has them."""
    half, above = np.float32(0.5), np.float32(0)
    low, high = x.min(), np.nextafter(x.max(), np.float32(np.inf))
    for _ in range(_COARSE_ROUNDS):
        middle = low * half + high * half
        measured = tree_sum(np.where(x >= middle, measure, np.float32(0)))
        if measured >= goal:
            low = middle
        else:
            high, above = middle, measured
    near = np.flatnonzero((x >= low) & (x < high))
    order = np.lexsort((near, -x[near]))
    shortest, longest = 0, len(near)
    while shortest < longest:
        length = (shortest + longest) // 2
        beginning = np.zeros(len(near), np.float32)
        beginning[order[:length]] = measure[near][order[:length]]
        if above + tree_sum(beginning) >= goal:
            longest = length
        else:
            shortest = length + 1
    kept = x >= high
    kept[near[order[:shortest]]] = True
    return kept


def _inverse_cdf(weights: NDArray[np.float32], u: np.float32) -> int:
    starts = range(0, len(weights), _BLOCK)
    sums = [tree_sum(weights[start : start + _BLOCK]) for start in starts]
    reached = np.add.accumulate(np.array(sums, np.float32), dtype=np.float32)
    target = u * reached[-1]
    block = int(np.argmax(reached > target))
    before = reached[block - 1] if block else np.float32(0)
    token = block * _BLOCK
    for position in range(block * _BLOCK, min((block + 1) * _BLOCK, len(weights))):
        if before > target:
            break
        before = before + weights[position]
        token = position if weights[position] > 0 else token
    return token


def uniform(request: Request) -> np.float32:
    """The random number of a draw: a multiple of 2**-24 in [0, 1)."""
    position, seed = request.position, request.seed
    counter = (position & _MASK, position >> 32, request.choice, 0)
    return np.float32((philox(counter, (seed & _MASK, seed >> 32))[0] >> 8) * 2.0**-24)


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 (Salmon et al. 2011)."""
    first, second = key
    for _ in range(10):
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = (
            (right >> 32) ^ counter[1] ^ first,
            right & _MASK,
            (left >> 32) ^ counter[3] ^ second,
            left & _MASK,
        )
        first, second = (first + 0x9E3779B9) & _MASK, (second + 0xBB67AE85) & _MASK
    return counter
