"""Fill one step within its tokens, rows and predicted time; knows no queue and no pages.

Decodes are taken whatever they cost, and a step may take `max_slowdown` times as long for prompts,
or as long as any where nobody reads what is decoded before its end.
One that is short as a whole may go beyond, by what earlier steps left unused: whoever decodes waits
for it once, and on average no longer than agreed. While a long prompt is computed none goes beyond,
but the long one leaves up to half of its tokens to short ones behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dashinfer_lab.engine.request import Request, Span
from dashinfer_lab.engine.step_cost import StepCost, StepKind, StepWork

__all__ = ["Assignment", "StepBudget", "StepCredit", "StepLimits"]

_LEAST_PROMPT_TOKENS: Final = 2
"""Tokens of prompts that a step has room for whatever it is predicted to take: with thousands of
keys before them even these take as long as the decodes beside them."""

_ANY_STEP_SECONDS: Final = 0.005
"""What any step may take: below it, Python's share of a step counts for more than the prompts'."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What one step may hold: tokens, tokens of one prompt, rows of logits, requests.

    max_slowdown: how much longer than its decodes alone a step with prompts may take.
    max_seconds: how long any step may take.  short_prompt_seconds: the time of the longest prompt
    that may go beyond `max_slowdown`, and how far. All are predicted; None is no such limit, or no
    such prompt.
    """

    max_tokens: int
    max_chunk_tokens: int
    max_logit_rows: int
    max_running: int
    max_slowdown: float | None = None
    max_seconds: float | None = None
    short_prompt_seconds: float | None = None

    def slowed(self, decode_seconds: float) -> float | None:
        """Seconds for a step whose decodes alone take so many."""
        if self.max_slowdown is None:
            return None
        return max(self.max_slowdown * decode_seconds, _ANY_STEP_SECONDS)


class Assignment(NamedTuple):
    """A request and what the step computes of it."""

    request: Request
    span: Span


class StepCredit:
    """Seconds by which short prompts may exceed `max_slowdown`: what steps with decodes left.

    No more than `short_prompt_seconds`, so that over any run of steps decoders wait `max_slowdown`
    times their own time, and `short_prompt_seconds` once.
    """

    def __init__(self, limits: StepLimits) -> None:
        self._limits: Final = limits
        self._most: Final = limits.short_prompt_seconds or 0.0
        self.seconds = self._most

    def settle(self, budget: StepBudget, seconds: float, num_walks: int) -> None:
        """Take into account a step that walked so many times, `seconds` each."""
        allowed = self._limits.slowed(seconds) if budget.only_decodes else budget.slowed_seconds
        if allowed is None:
            self.seconds = self._most  # nobody was slowed
            return
        left = self.seconds + num_walks * (allowed - seconds)
        self.seconds = min(max(left, 0.0), self._most)


class StepBudget:
    """A step being filled: decodes, then prompts that were begun, then newcomers.

    first: who ranks before all others that run.  keeps_back: whether prompts that could have been
    taken were not, or but for one token.
    slowed_seconds: what the step may take for its decodes' sake; None while no prompt was looked
    at, and where nothing is predicted or no decode has a reader.
    """

    def __init__(
        self,
        limits: StepLimits,
        cost: StepCost,
        credit_seconds: float,
        first: Request | None = None,
    ) -> None:
        self.assignments: Final[list[Assignment]] = []
        self.slowed_seconds: float | None = None
        self.keeps_back = False
        self._limits: Final = limits
        self._cost: Final = cost
        self._credit_seconds = credit_seconds
        self._first: Final = first
        self._work = StepWork()
        self._tokens_left = limits.max_tokens
        self._rows_left = limits.max_logit_rows
        self._num_decodes = 0
        self._decodes_are_read = False
        self._short_tokens = 0
        self._least_left: int | None = None
        self._most_tokens = limits.max_tokens

    @property
    def only_decodes(self) -> bool:
        """Whether no prompt was taken."""
        return len(self.assignments) == self._num_decodes

    @property
    def kind(self) -> StepKind:
        """What the step computes."""
        if self.only_decodes or self.keeps_back:
            return StepKind.ALONE
        return StepKind.BESIDE if self._num_decodes else StepKind.PROMPTS

    @property
    def has_room(self) -> bool:
        """Whether another token can be taken."""
        return self._tokens_left > 0 and self._allowed(0, self._credit_seconds) > 0

    def is_short(self, request: Request) -> bool:
        """Whether a prompt, but for what it found computed, fits a step and takes a moment."""
        start, seconds = request.num_shared, self._limits.short_prompt_seconds
        length = request.num_tokens - start
        return (
            seconds is not None
            and self._cost.known
            and length <= self._limits.max_chunk_tokens
            and length <= self._cost.tokens_within(seconds, start)
        )

    def take_decode(self, request: Request) -> None:
        """Add the request's next token, whatever it takes."""
        self._take(request, self._tokens_left)
        self._num_decodes = len(self.assignments)
        self._decodes_are_read |= request.read_as_it_comes

    def begin_prompts(self, prompts: Sequence[Request]) -> None:
        """Look at all prompts that were begun, before they are taken one by one."""
        short = [request for request in prompts if self.is_short(request)]
        self._short_tokens = sum(map(_num_left, short))
        if len(short) < len(prompts):
            self._credit_seconds = 0.0

    def take(self, request: Request) -> None:
        """Add the request's next span, as far as there is room and time."""
        short = self.is_short(request)
        if not short:
            self._credit_seconds = 0.0
        allowed = self._allowed(request.num_computed, self._credit_seconds)
        most = min(allowed, self._limits.max_chunk_tokens)
        if short:
            self._short_tokens -= _num_left(request)
        else:
            most -= min(most // 2, self._short_tokens)
        num_taken = self._take(request, most)
        if self._least_left is not None:
            self._least_left -= num_taken

    def _take(self, request: Request, max_tokens: int) -> int:
        """Tokens that were added."""
        span = request.plan(min(max_tokens, self._tokens_left), self._rows_left)
        if span is None:
            return 0
        self.assignments.append(Assignment(request, span))
        self._tokens_left -= span.length
        self._rows_left -= span.num_logit_rows
        self._work = self._work.with_span(span.start, span.length, span.num_logit_rows)
        return span.length

    def _allowed(self, start: int, credit_seconds: float) -> int:
        """Tokens of a prompt, from `start` on, for which the step has time."""
        if not self._cost.known:
            return self._tokens_left
        if self._least_left is None:
            self._look_at_decodes()
        limits = [] if self._limits.max_seconds is None else [self._limits.max_seconds]
        if self.slowed_seconds is not None:
            limits.append(self.slowed_seconds + credit_seconds)
        if not limits:
            return self._tokens_left
        left = min(limits) - self._cost.predict(self._work)
        in_time = min(self._cost.tokens_within(left, start), self._tokens_left)
        if self.slowed_seconds is not None:
            in_time = min(in_time, self._most_tokens - self._work.num_tokens)
        return max(int(in_time), self._least_left or 0, 0)

    def _keep_prompts_back(self) -> None:
        """Let this step tell what decodes take alone; a prompt that ranks first takes one token."""
        first_decodes = self._first is self.assignments[0].request
        self._most_tokens, self._least_left = 0, 0 if first_decodes else 1
        self.keeps_back = True

    def _look_at_decodes(self) -> None:
        """Find what the step may take for its decodes' sake, now that all are taken."""
        num_decoding = self._work.num_tokens
        self._least_left = max(_LEAST_PROMPT_TOKENS, self._cost.telling_tokens - num_decoding)
        if self._decodes_are_read:
            self.slowed_seconds = self._limits.slowed(self._cost.predict(self._work))
            self._most_tokens = self._cost.reach if self._cost.knows_few(num_decoding) else 0
            if self._cost.wants_decodes_alone and self._limits.max_slowdown is not None:
                self._keep_prompts_back()


def _num_left(request: Request) -> int:
    return request.num_tokens - request.num_computed
