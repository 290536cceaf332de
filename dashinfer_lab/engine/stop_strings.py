"""Find stop texts, or runs of ids, in a stream and withhold what could begin one.

Each is an automaton (Knuth, Morris & Pratt 1977) fed element by element, so that the outcome does
not depend on how the text was cut, and the time is linear in its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["Passed", "PassedIds", "StopRuns", "StopScanner"]

P = TypeVar("P", str, tuple[int, ...])


class Passed(NamedTuple):
    """Text that may be shown, and the stop text or ids that ended the stream, if any did."""

    text: str
    stop: str | tuple[int, ...] | None


class PassedIds(NamedTuple):
    """Ids that belong to no stop, and the run that ended the stream, if one did."""

    ids: Sequence[int]
    stop: tuple[int, ...] | None


class StopScanner:
    """Let text through up to the stop text that is complete first (of several, the longest).

    With `include` that text is let through too, and nothing is withheld.
    """

    __slots__ = ("_held", "_include", "_stops")

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops: Final = [_Automaton(stop) for stop in stops]
        self._include: Final = include
        self._held = ""

    def push(self, text: str) -> Passed:
        """Take more text; return what is certain not to begin a stop text."""
        if not self._stops:
            return Passed(text, None)
        self._held += text
        for end in range(len(self._held) - len(text), len(self._held)):
            complete = [stop.pattern for stop in self._stops if stop.advance(self._held[end])]
            if complete:
                longest = max(complete, key=len)
                begin = end + 1 if self._include else end + 1 - len(longest)
                return Passed(self._take(begin), longest)
        begun = 0 if self._include else max(stop.matched for stop in self._stops)
        return Passed(self._take(len(self._held) - begun), None)

    def finish(self) -> str:
        """Return what was withheld: the stream ended without a stop text."""
        return self._take(len(self._held))

    def _take(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken


class StopRuns:
    """Let ids through up to the run that is complete first (of several, the longest)."""

    __slots__ = ("_held", "_runs")

    def __init__(self, runs: Sequence[Sequence[int]]) -> None:
        self._runs: Final = [_Automaton(tuple(run)) for run in runs]
        self._held: list[int] = []

    def push(self, token_id: int) -> PassedIds:
        """Take an id; return those that are certain not to begin a run."""
        if not self._runs:
            return PassedIds((token_id,), None)
        self._held.append(token_id)
        complete = [run.pattern for run in self._runs if run.advance(token_id)]
        if complete:
            longest = max(complete, key=len)
            before = self._take(len(self._held) - len(longest))
            self._held = []
            return PassedIds(before, longest)
        begun = max(run.matched for run in self._runs)
        return PassedIds(self._take(len(self._held) - begun), None)

    def finish(self) -> Sequence[int]:
        """Return what was withheld: the stream ended without a run."""
        return self._take(len(self._held))

    def _take(self, count: int) -> Sequence[int]:
        taken, self._held = self._held[:count], self._held[count:]
        return taken


class _Automaton(Generic[P]):
    """How much of one pattern the stream's end spells: the longest prefix that is its suffix."""

    __slots__ = ("_fallback", "matched", "pattern")

    def __init__(self, pattern: P) -> None:
        self.pattern: Final = pattern
        self.matched = 0
        self._fallback = [0] * len(pattern)
        for index in range(1, len(pattern)):
            self.advance(pattern[index])
            self._fallback[index] = self.matched
        self.matched = 0

    def advance(self, element: str | int) -> bool:
        """Take one element; say whether the pattern is complete."""
        while self.matched and self.pattern[self.matched] != element:
            self.matched = self._fallback[self.matched - 1]
        if self.pattern[self.matched] == element:
            self.matched += 1
        return self.matched == len(self.pattern)
