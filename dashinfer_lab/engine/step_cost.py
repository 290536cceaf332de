"""How long a step will take, learnt from those before; knows counts, not requests.

    seconds = c0 + c1 · tokens + c2 · rows of logits + c3 · pairs of query and key

Coefficients give the least squares of relative errors with none below 0; recent steps count more.
As long as few steps leave them open, tokens take what they can: one seems dearer than it is, and
what decodes take alone shorter, so that a prompt beside them begins with few tokens.
The first steps may take many times what the same take later, when weights come from the disk, and a
machine may change its speed. So now and then decodes have a step as good as alone, and what was
learnt before counts little once some steps in a row are far from what was predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

__all__ = ["StepCost", "StepKind", "StepWork"]

_NEWEST: Final = 0.02  # what the newest of many observations counts
_MOST_SWEEPS: Final = 200
_SETTLED: Final = 1e-4  # of the largest share of a step's time
_NUM_FEATURES: Final = 4
_TOKENS_FIRST: Final = (1, 0, 2, 3)
_TELLING_TOKENS: Final = 16
_ENOUGH_ALONE: Final = 3
_MOST_BESIDE: Final = 64
_FAR_OFF: Final = math.log(1.5)  # times as long as predicted, or as short
_TIMES_USUAL: Final = 4.0
_NEWEST_OFF: Final = 0.05
_MOST_FAR_OFF: Final = 3
_LEFT_SEEN: Final = 2
_NEAR: Final = 4
_LEAST_SECONDS: Final = 1e-5
_PAIRS: Final = 1024.0  # of a unit, so that coefficients are of one size


class StepKind(Enum):
    """What a step computes: decodes as good as alone, prompts beside them, or prompts alone."""

    ALONE = auto()
    BESIDE = auto()
    PROMPTS = auto()


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

    Steps with prompts and those of decodes alone count alike, and of each recent ones: a prompt of
    a thousand steps must not let fade what decodes alone take.
    """

    def __init__(self) -> None:
        self._alone: Final = _Observations()
        self._with_prompts: Final = _Observations()
        self._coefficients = [0.0] * _NUM_FEATURES
        self._solved = True
        self._most_tokens = 0
        self._most_of_late = 0.0
        self._least_tokens = 0
        self._num_alone = 0
        self._num_beside = 0
        self._num_far_off = 0
        self._usual_off = 0.0

    @property
    def known(self) -> bool:
        """Whether any step was observed."""
        return self._most_tokens > 0

    @property
    def reach(self) -> int:
        """Tokens of a step up to which predictions are to be trusted: twice the most of late.

        A few tokens may all take the time of one, which says nothing of hundreds.
        """
        return max(_TELLING_TOKENS, int(2 * self._most_of_late))

    def knows_few(self, num_tokens: int) -> bool:
        """Whether a step of about so few tokens was observed: of no more than four times as many.

        Hundreds of tokens at once are cheaper each, so that they make a step of few look long.
        """
        return self._least_tokens <= _NEAR * num_tokens

    @property
    def wants_decodes_alone(self) -> bool:
        """Whether a step of decodes is due without prompts: few were seen, or many beside prompts.

        What decodes are believed to take bounds every step that prompts share with them.
        """
        return self._num_alone < _ENOUGH_ALONE or self._num_beside >= _MOST_BESIDE

    @property
    def telling_tokens(self) -> int:
        """Tokens a step is to have so that steps differ enough to tell costs apart; 0 if one had.

        Were all steps alike, so would be what is predicted for any.
        """
        return _TELLING_TOKENS if self._most_tokens < _TELLING_TOKENS else 0

    def observe(self, work: StepWork, seconds: float, kind: StepKind) -> None:
        """Take the time of a step into account."""
        if kind is not StepKind.PROMPTS and self._num_beside + (kind is StepKind.BESIDE):
            self._look_back(self._way_off(work, seconds), kind)
        scale = 1 / max(seconds, _LEAST_SECONDS)
        features = tuple(scale * feature for feature in _features(work))
        alone = kind is StepKind.ALONE
        (self._alone if alone else self._with_prompts).add(features, scale * seconds)
        self._num_alone += alone
        self._num_beside = 0 if alone else self._num_beside + (kind is StepKind.BESIDE)
        self._most_tokens = max(self._most_tokens, work.num_tokens)
        faded = self._most_of_late * (1 - _NEWEST * (kind is StepKind.BESIDE))
        self._most_of_late = max(faded, work.num_tokens)
        self._least_tokens = min(self._least_tokens or work.num_tokens, work.num_tokens)
        self._solved = False

    def _way_off(self, work: StepWork, seconds: float) -> int:
        """1 for a step that took far longer than predicted, -1 for far shorter, 0 for others.

        Far is beyond what is usual here: where steps vary, no single one tells anything.
        """
        off = math.log(max(seconds, _LEAST_SECONDS) / max(self.predict(work), _LEAST_SECONDS))
        far = max(_FAR_OFF, _TIMES_USUAL * self._usual_off)
        self._usual_off += _NEWEST_OFF * (min(abs(off), _FAR_OFF) - self._usual_off)
        return (off > far) - (off < -far)

    def _look_back(self, way: int, kind: StepKind) -> None:
        """Let what was seen before count little where steps are far from it.

        One may have been held up: decodes then have a step alone, and tokens grow anew, twofold a
        step. That step being off, too, or several in a row tell that the machine is another one.
        """
        same_way = way * self._num_far_off > 0
        if kind is StepKind.BESIDE:
            self._num_far_off = self._num_far_off + way if same_way else way
            if way:
                self._num_alone, self._most_of_late = min(self._num_alone, _ENOUGH_ALONE - 1), 0.0
            changed = abs(self._num_far_off) >= _MOST_FAR_OFF
        else:
            changed = same_way
        if changed or (way and kind is StepKind.ALONE):
            self._alone.forget(_LEFT_SEEN)
            self._num_alone = 0
        if changed:
            self._with_prompts.forget(_LEFT_SEEN)
            self._num_far_off = 0

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
        both = self._alone, self._with_prompts
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
    """Means over the steps of one kind: the n-th counts as n times the first, and at least 2 %."""

    def __init__(self) -> None:
        self.products: Final = [[0.0] * _NUM_FEATURES for _ in range(_NUM_FEATURES)]
        self.targets: Final = [0.0] * _NUM_FEATURES
        self._num_seen = 0

    def forget(self, num_left: int) -> None:
        """Let later steps count as if no more than so many had been seen."""
        self._num_seen = min(self._num_seen, num_left)

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
