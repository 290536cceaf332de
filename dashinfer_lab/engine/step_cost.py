"""How long a step will take, learnt from those before; knows counts, not requests.

    seconds = c0 + c1 · tokens + c2 · rows of logits + c3 · pairs of query and key

Coefficients give the least squares of relative errors with none below 0; recent steps count more.
As long as few steps leave them open, tokens take what they can: one seems dearer than it is, and
what decodes take alone shorter, so that a prompt beside them begins with few tokens.
The first step may take many times what the same takes later, when weights come from the disk: it is
soon outweighed, if only steps of both kinds follow. So now and then decodes have a step alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["StepCost", "StepWork"]

_NEWEST: Final = 0.02  # what the newest of many observations counts
_MOST_SWEEPS: Final = 200
_SETTLED: Final = 1e-4  # of the largest share of a step's time
_NUM_FEATURES: Final = 4
_TOKENS_FIRST: Final = (1, 0, 2, 3)
_TELLING_TOKENS: Final = 16
_ENOUGH_ALONE: Final = 3
_MOST_BESIDE: Final = 64
_NEAR: Final = 4
_LEAST_SECONDS: Final = 1e-5
_PAIRS: Final = 1024.0  # of a unit, so that coefficients are of one size


class StepWork(NamedTuple):
    """Counts of one step. num_pairs: keys that queries meet."""

    num_tokens: int = 0
    num_logit_rows: int = 0
    num_pairs: int = 0

    def with_span(self, start: int, length: int, num_logit_rows: int) -> StepWork:
        """The work with a span of `length` tokens from `start` on."""
        pairs = length * start + length * (length + 1) // 2
        return StepWork(
            self.num_tokens + length, self.num_logit_rows + num_logit_rows, self.num_pairs + pairs
        )


class StepCost:
    """Observe steps; predict from the second on.

    Steps with prompts and those of decodes alone count alike, and of each kind recent ones: a
    prompt of a thousand steps must not let fade what decodes alone take.
    """

    def __init__(self) -> None:
        self._kinds: Final = {True: _Observations(), False: _Observations()}
        self._coefficients = [0.0] * _NUM_FEATURES
        self._solved = True
        self._most_tokens = 0
        self._least_tokens = 0
        self._num_alone = 0
        self._num_beside = 0

    @property
    def known(self) -> bool:
        """Whether any step was observed."""
        return self._most_tokens > 0

    @property
    def reach(self) -> int:
        """Tokens of a step up to which predictions are to be trusted: twice the most observed.

        A few tokens may all take the time of one, which says nothing of hundreds.
        """
        return max(_TELLING_TOKENS, 2 * self._most_tokens)

    def knows_few(self, num_tokens: int) -> bool:
        """Whether a step of about so few tokens was observed: of no more than four times as many.

        Hundreds of tokens at once are cheaper each, so that they make a step of few look long.
        """
        return self._least_tokens <= _NEAR * num_tokens

    @property
    def wants_decodes_alone(self) -> bool:
        """Whether a step of decodes is due without prompts: few were seen, or none for long.

        What decodes are believed to take bounds every step that prompts share with them.
        """
        return self._num_alone < _ENOUGH_ALONE or self._num_beside >= _MOST_BESIDE

    @property
    def telling_tokens(self) -> int:
        """Tokens a step is to have so that steps differ enough to tell costs apart; 0 if one had.

        Were all steps alike, so would be what is predicted for any.
        """
        return _TELLING_TOKENS if self._most_tokens < _TELLING_TOKENS else 0

    def observe(self, work: StepWork, seconds: float) -> None:
        """Take the time of a step into account."""
        scale = 1 / max(seconds, _LEAST_SECONDS)
        features = tuple(scale * feature for feature in _features(work))
        alone = work.num_tokens <= work.num_logit_rows
        self._kinds[alone].add(features, scale * seconds)
        self._num_alone += alone
        self._num_beside = 0 if alone else self._num_beside + (work.num_logit_rows > 0)
        self._most_tokens = max(self._most_tokens, work.num_tokens)
        self._least_tokens = min(self._least_tokens or work.num_tokens, work.num_tokens)
        self._solved = False

    def predict(self, work: StepWork) -> float:
        """Seconds a step will take."""
        self._solve()
        return sum(c * x for c, x in zip(self._coefficients, _features(work), strict=True))

    def tokens_within(self, seconds: float, start: int) -> float:
        """Tokens of a prompt, from `start` on, that add no more than `seconds` to a step."""
        self._solve()
        a_token, a_pair = self._coefficients[1], self._coefficients[3] / _PAIRS
        linear = a_token + a_pair * (start + 0.5)
        if linear <= 0 or seconds <= 0:
            return math.inf if seconds > 0 else 0
        # a_pair / 2 · n² + linear · n = seconds, in the form that stays exact where a_pair is 0.
        return 2 * seconds / (linear + math.sqrt(linear * linear + 2 * a_pair * seconds))

    def _solve(self) -> None:
        """Minimise over one coefficient after another, from where the last solution left them."""
        if self._solved:
            return
        self._solved = True
        both = tuple(self._kinds.values())
        products = [
            [p + q for p, q in zip(*rows, strict=True)]
            for rows in zip(*(kind.products for kind in both), strict=True)
        ]
        targets = [p + q for p, q in zip(*(kind.targets for kind in both), strict=True)]
        for _ in range(_MOST_SWEEPS):
            if _sweep(self._coefficients, products, targets):
                return


def _sweep(current: list[float], products: list[list[float]], targets: list[float]) -> bool:
    """Minimise over one coefficient after another; say whether none changed much."""
    change = size = 0.0
    for i in _TOKENS_FIRST:
        p, q, r, s = products[i]
        own = products[i][i]
        if own > 0:
            a, b, c, d = current
            rest = targets[i] - (p * a + q * b + r * c + s * d - own * current[i])
            best = max(0.0, rest / own)
            change = max(change, abs(best - current[i]) * math.sqrt(own))
            size = max(size, best * math.sqrt(own))
            current[i] = best
    return change <= _SETTLED * size


class _Observations:
    """Means over the steps of one kind: the n-th counts n times as the first, at the most 2 %."""

    def __init__(self) -> None:
        self.products: Final = [[0.0] * _NUM_FEATURES for _ in range(_NUM_FEATURES)]
        self.targets: Final = [0.0] * _NUM_FEATURES
        self._num_seen = 0

    def add(self, features: Sequence[float], target: float) -> None:
        self._num_seen += 1
        share = max(2 / (self._num_seen + 1), _NEWEST)
        for i, left in enumerate(features):
            self.targets[i] += share * (left * target - self.targets[i])
            products = self.products[i]
            for j, right in enumerate(features):
                products[j] += share * (left * right - products[j])


def _features(work: StepWork) -> tuple[float, float, float, float]:
    return 1.0, float(work.num_tokens), float(work.num_logit_rows), work.num_pairs / _PAIRS
