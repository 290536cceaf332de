"""What a request's tokens so far say about the next one, kept up token by token.

The cost of a token does not grow with the text before it. Knows ids, not text and not logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BannedWords", "RepeatedRuns", "SeenTokens"]


class SeenTokens:
    """Distinct ids of prompt and output, and how often each is in the output."""

    def __init__(self, prompt: Iterable[int]) -> None:
        ids = np.unique(np.fromiter(prompt, np.int32))
        self._pairs = np.zeros((max(2 * len(ids), 16), 2), np.int32)
        self._pairs[: len(ids), 0] = ids
        self._places: Final = {int(token_id): place for place, token_id in enumerate(ids)}

    def add(self, token_id: int) -> None:
        """Count a drawn token."""
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._pairs):
            self._pairs = np.concatenate([self._pairs, np.zeros_like(self._pairs)])
        self._pairs[place, 0] = token_id
        self._pairs[place, 1] += 1

    @property
    def pairs(self) -> NDArray[np.int32]:
        """Int32 [P][2] of id and count, a view that the next token changes."""
        return self._pairs[: len(self._places)]


class BannedWords:
    """Runs of ids that the output must not complete."""

    def __init__(self, words: Iterable[Sequence[int]]) -> None:
        self.always: Final = frozenset(word[0] for word in words if len(word) == 1)
        self._after: Final[dict[int, list[tuple[list[int], int]]]] = {}
        for *prefix, last in (word for word in words if len(word) > 1):
            self._after.setdefault(prefix[-1], []).append((prefix, last))

    def after(self, output: list[int]) -> Iterator[int]:
        """Ids that would complete a word of several."""
        if not self._after or not output:
            return
        for prefix, last in self._after.get(output[-1], ()):
            if output[-len(prefix) :] == prefix:
                yield last


class RepeatedRuns:
    """Runs of `size` ids in prompt and output; none may come twice."""

    def __init__(self, size: int, prompt: Iterable[int]) -> None:
        self._size: Final = size
        self._recent: tuple[int, ...] = ()
        self._followers: Final[dict[tuple[int, ...], set[int]]] = {}
        for token_id in prompt:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        """Remember the run that a token ends."""
        if len(self._recent) == self._size - 1:
            self._followers.setdefault(self._recent, set()).add(token_id)
        self._recent = (*self._recent, token_id)[max(len(self._recent) + 2 - self._size, 0) :]

    def banned(self) -> Iterable[int]:
        """Ids that would repeat a run."""
        return self._followers.get(self._recent, ())
