"""Sampling in NumPy: `probabilities` in float64 by sorting, `sample` with the kernel's bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jit_kernels.reference.arithmetic import exp, log, tree_sum

__all__ = [
    "Request",
    "edited",
    "philox",
    "probabilities",
    "rank",
    "sample",
    "top",
    "uniform",
    "weights",
]

_MASK = 0xFFFFFFFF
_BLOCK = 256
_COARSE_ROUNDS = 8
_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class Request:
    """What one row is drawn with; `counts` maps ids seen before to how often in the output."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    choice: int = 0
    position: int = 0
    min_p: float = 0.0
    allowed: tuple[int, ...] = ()
    biases: tuple[tuple[int, float], ...] = ()
    counts: Mapping[int, int] = field(default_factory=dict[int, int])
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0


def edited(x: NDArray[np.float32], request: Request) -> NDArray[np.float32]:
    """Only allowed ids, biases added, penalties taken off; finite logits stay finite."""
    result = x.copy()
    if request.allowed:
        result[:] = -np.inf
        result[list(request.allowed)] = x[list(request.allowed)]
    for token, bias in request.biases:
        after = result[token] + np.float32(bias)
        result[token] = -np.inf if bias == -np.inf else _bounded(result[token], after)
    repetition, presence, frequency = (
        np.float32(number) for number in (request.repetition, request.presence, request.frequency)
    )
    for token, count in request.counts.items():
        value = result[token]
        with np.errstate(over="ignore"):
            repeated = value / repetition if value > 0 else value * repetition
            reduced = repeated - frequency * np.float32(count)
            reduced = reduced - (presence if count else np.float32(0))
        result[token] = _bounded(value, reduced)
    return result


def _bounded(before: np.float32, after: np.float32) -> np.float32:
    return before if before == -np.inf else np.clip(after, -_LARGEST, _LARGEST)


def rank(x: NDArray[np.float32], token: int) -> int:
    """1 + the number of larger logits."""
    return 1 + int(np.count_nonzero(x > x[token]))


def top(x: NDArray[np.float32], count: int) -> list[int]:
    """The ids of the largest, equal ones by id."""
    return [int(token) for token in np.lexsort((np.arange(len(x)), -x))[:count]]


def probabilities(
    x: NDArray[np.float32],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> NDArray[np.float64]:
    """The distribution that the rule describes; temperature above 0."""
    scaled = (x.astype(np.float64) - x.max()) / temperature
    order = np.lexsort((np.arange(len(x)), -x))
    weights = np.exp(scaled[order])
    weights[weights < min(min_p, 1.0)] = 0
    if 0 < top_k < len(x):
        weights[top_k:] = 0
    if top_p < 1:
        reached = np.cumsum(weights) >= top_p * weights.sum()
        weights[int(np.argmax(reached)) + 1 :] = 0
    result = np.zeros(len(x))
    result[order] = weights / weights.sum()
    return result


def sample(x: NDArray[np.float32], request: Request) -> tuple[int, bool, np.float32]:
    """Token, -1 where all are banned; whether all logits are finite; and log(sum(exp(x)))."""
    if not np.isfinite(x).all():
        return 0, False, np.float32(np.nan)
    logsumexp = x.max() + log(tree_sum(exp(x - x.max())))
    x = edited(x, request)
    if x.max() == -np.inf:
        return -1, True, np.float32(logsumexp)
    if request.temperature <= 0:
        return int(x.argmax()), True, np.float32(logsumexp)
    return _inverse_cdf(weights(x, request), uniform(request)), True, np.float32(logsumexp)


def weights(x: NDArray[np.float32], request: Request) -> NDArray[np.float32]:
    """exp((x - max) / T) of edited logits, 0 where a filter drops the token."""
    result = exp((x - x.max()) / np.float32(request.temperature))
    least = min(np.float32(request.min_p), np.float32(1))
    result = np.where(result >= least, result, np.float32(0))
    if 0 < request.top_k < np.count_nonzero(x > -np.inf):
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
    low, high = x[x > -np.inf].min(), np.nextafter(x.max(), np.float32(np.inf))
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
