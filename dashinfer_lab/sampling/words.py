"""Bad words as token ids, in vLLM's way: with and without a space before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dashinfer_lab.errors import RequestError

__all__ = ["bad_word_ids"]


def bad_word_ids(
    words: Iterable[str], encode: Callable[[str], Sequence[int]]
) -> list[tuple[int, ...]]:
    """The ids of each word, and those after a space where they are as many and begin otherwise.

    `encode` adds no special tokens. Raises `RequestError` for a word without ids.
    """
    found: list[tuple[int, ...]] = []
    for word in words:
        plain = tuple(encode(word.lstrip()))
        spaced = tuple(encode(" " + word.lstrip()))
        if not plain:
            raise RequestError(f"bad_words names {word!r}, which this model's tokens cannot spell")
        found.append(plain)
        if len(spaced) == len(plain) and spaced[0] != plain[0]:
            found.append(spaced)
    return found
