"""Find stop texts in a stream and withhold what could begin one; knows no tokens.

Each stop text is an automaton (Knuth, Morris & Pratt 1977) fed character by character, so that the
outcome does not depend on how the text was cut, and the time is linear in its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["Passed", "StopScanner"]


class Passed(NamedTuple):
    """Text that may be shown, and the stop text that ended the stream, if one did."""

    text: str
    stop: str | None


class StopScanner:
    """Let text through up to the stop text that is complete first (of several, the longest)."""

    __slots__ = ("_held", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops: Final = [_Automaton(stop) for stop in stops]
        self._held = ""

    def push(self, text: str) -> Passed:
        """Take more text; return what is certain not to begin a stop text."""
        if not self._stops:
            return Passed(text, None)
        self._held += text
        for end in range(len(self._held) - len(text), len(self._held)):
            complete = [stop.text for stop in self._stops if stop.advance(self._held[end])]
            if complete:
                longest = max(complete, key=len)
                return Passed(self._take(end + 1 - len(longest)), longest)
        return Passed(self._take(len(self._held) - max(stop.matched for stop in self._stops)), None)

    def finish(self) -> str:
        """Return what was withheld: the stream ended without a stop text."""
        return self._take(len(self._held))

    def _take(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        return taken


class _Automaton:
    """How much of one text the stream's end spells: the longest prefix that is its suffix."""

    __slots__ = ("_fallback", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.matched = 0
        self._fallback = [0] * len(text)
        for index in range(1, len(text)):
            self.advance(text[index])
            self._fallback[index] = self.matched
        self.matched = 0

    def advance(self, char: str) -> bool:
        """Take one character; say whether the text is complete."""
        while self.matched and self.text[self.matched] != char:
            self.matched = self._fallback[self.matched - 1]
        if self.text[self.matched] == char:
            self.matched += 1
        return self.matched == len(self.text)
