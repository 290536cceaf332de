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
    """Observe steps; predict once some with and some without prompts have been seen."""

    def __init__(self) -> None:
        self._products = [[0.0] * 4 for _ in range(4)]
        self._targets = [0.0] * 4
        self._coefficients = [0.0] * 4
        self._num_seen = {True: 0, False: 0}

    @property
    def known(self) -> bool:
        """Whether predictions rest on observations of both kinds of steps."""
        return min(self._num_seen.values()) >= _FEW

    def observe(self, work: StepWork, seconds: float) -> None:
        """Take the time of a step into account."""
        row = _features(work)
        for i, left in enumerate(row):
            self._targets[i] = _KEPT * self._targets[i] + left * seconds
            products = self._products[i]
            for j, right in enumerate(row):
                products[j] = _KEPT * products[j] + left * right
        self._num_seen[work.num_tokens > work.num_logit_rows] += 1
        self._descend()

    def predict(self, work: StepWork) -> float:
        """Seconds a step will take."""
        return sum(c * x for c, x in zip(self._coefficients, _features(work), strict=True))

    def tokens_within(self, seconds: float, start: int) -> float:
        """Tokens of a prompt, from `start` on, that add no more than `seconds` to a step."""
        a_token, a_pair = self._coefficients[1], self._coefficients[3] / _PAIRS
        linear = a_token + a_pair * (start + 0.5)
        if linear <= 0 or seconds <= 0:
            return math.inf if seconds > 0 else 0
        # a_pair / 2 · n² + linear · n = seconds, in the form that stays exact where a_pair is 0.
        return 2 * seconds / (linear + math.sqrt(linear * linear + 2 * a_pair * seconds))

    def _descend(self) -> None:
        """Minimise over one coefficient after another, from where the last step left them."""
        current = self._coefficients
        for _ in range(_SWEEPS):
            for i, products in enumerate(self._products):
                if products[i] > 0:
                    others = sum(p * c for p, c in zip(products, current, strict=True))
                    rest = self._targets[i] - (others - products[i] * current[i])
                    current[i] = max(0.0, rest / products[i])


def _features(work: StepWork) -> tuple[float, float, float, float]:
    return 1.0, float(work.num_tokens), float(work.num_logit_rows), work.num_pairs / _PAIRS
