"""How long a step will take, learnt from those before; knows counts, not requests.

    seconds = c0 + c1 · tokens + c2 · rows of logits + c3 · pairs of query and key

Coefficients are the least squares with none below 0 over steps of which recent ones count more.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["StepCost", "StepWork"]

_KEPT: Final = 0.98  # what is left of an observation after another one
_SWEEPS: Final = 20
_NUM_FEATURES: Final = 4
_FEW: Final = 4
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
    """Observe steps; predict once some with and some without prompts have been seen.

    Of each kind its own recent steps count: a prompt of a thousand steps must not let fade what
    decodes alone take.
    """

    def __init__(self) -> None:
        self._kinds: Final = {True: _Observations(), False: _Observations()}
        self._coefficients = [0.0] * _NUM_FEATURES
        self._solved = True

    @property
    def known(self) -> bool:
        """Whether predictions rest on observations of both kinds of steps."""
        return all(kind.num_seen >= _FEW for kind in self._kinds.values())

    def observe(self, work: StepWork, seconds: float) -> None:
        """Take the time of a step into account."""
        self._kinds[work.num_tokens > work.num_logit_rows].add(_features(work), seconds)
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
        current = self._coefficients
        for _ in range(_SWEEPS):
            for i, (p, q, r, s) in enumerate(products):
                own = products[i][i]
                if own > 0:
                    a, b, c, d = current
                    rest = targets[i] - (p * a + q * b + r * c + s * d - own * current[i])
                    current[i] = max(0.0, rest / own)


class _Observations:
    """Sums over the steps of one kind, of which recent ones count more."""

    def __init__(self) -> None:
        self.products: Final = [[0.0] * _NUM_FEATURES for _ in range(_NUM_FEATURES)]
        self.targets: Final = [0.0] * _NUM_FEATURES
        self.num_seen = 0

    def add(self, features: tuple[float, ...], seconds: float) -> None:
        for i, left in enumerate(features):
            self.targets[i] = _KEPT * self.targets[i] + left * seconds
            products = self.products[i]
            for j, right in enumerate(features):
                products[j] = _KEPT * products[j] + left * right
        self.num_seen += 1


def _features(work: StepWork) -> tuple[float, float, float, float]:
    return 1.0, float(work.num_tokens), float(work.num_logit_rows), work.num_pairs / _PAIRS
