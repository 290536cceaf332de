"""Log-probabilities of a prompt's tokens, gathered chunk by chunk; knows no scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dashinfer_lab.engine.batch import PromptScoring
from dashinfer_lab.engine.request import Span
from dashinfer_lab.sampling import TokenLogprobs

__all__ = ["PromptScores"]


class PromptScores:
    """The row after each token rates the next one; the first has no row, the last rates a draw.

    num_logprobs: likeliest tokens beside each.  A preempted request keeps what was found.
    """

    def __init__(self, prompt: Sequence[int], num_logprobs: int, num_ids: int | None) -> None:
        self.found: Final[list[TokenLogprobs]] = []
        self._prompt: Final = prompt
        self._num_logprobs: Final = num_logprobs
        self._num_ids: Final = num_ids

    @property
    def complete(self) -> bool:
        """Whether every token but the first has been rated."""
        return len(self.found) >= len(self._prompt) - 1

    def plan(self, start: int, length: int, max_rows: int) -> Span | None:
        """The span from `start` on, at most `length` tokens, whose rows are wanted or are not."""
        unwanted = len(self.found) - start
        if unwanted > 0:
            return Span(start, min(length, unwanted), "none")
        length = min(length, max_rows)
        return Span(start, length, "all") if length > 0 else None

    def scoring(self, span: Span) -> PromptScoring | None:
        """What to report of a span's rows."""
        if self.complete or span.logit_rows != "all":
            return None
        targets = self._prompt[span.start + 1 : span.end + 1]
        return PromptScoring(targets, self._num_logprobs, self._num_ids)

    def take(self, logprobs: Sequence[TokenLogprobs]) -> None:
        """Keep what a span's rows reported."""
        self.found.extend(logprobs)
