"""Refuse at the door what could never be served; knows limits, not the load."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashinfer_lab.engine.batch import ModelRunner
from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling.checks import shown

__all__ = ["Capacity"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The longest sequence, the whole cache, and the ids a model knows."""

    context_length: int
    num_pages: int
    page_size: int
    vocab_size: int

    @classmethod
    def of(cls, runner: ModelRunner) -> Capacity:
        """Read a model's limits."""
        return cls(runner.context_length, runner.num_pages, runner.page_size, runner.vocab_size)

    @property
    def cache_tokens(self) -> int:
        """Tokens the whole cache holds."""
        return self.num_pages * self.page_size

    @property
    def longest_prompt(self) -> int:
        """Tokens of a prompt beside which one can be drawn."""
        return min(self.context_length - 1, self.cache_tokens)

    def check_ids(self, token_ids: Iterable[int]) -> list[int]:
        """Return the ids as plain integers; refuse none at all, and ids the model does not know."""
        try:
            ids = [_whole_number(token_id) for token_id in token_ids]
        except (TypeError, ValueError) as error:
            raise RequestError(f"token ids must be whole numbers: {error}") from error
        if not ids:
            raise RequestError("the prompt is empty: give at least one token")
        for position, token_id in enumerate(ids):
            if not 0 <= token_id < self.vocab_size:
                raise RequestError(
                    f"token id {shown(token_id)} at position {position} is not one of the model's "
                    f"0..{self.vocab_size - 1}"
                )
        return ids

    def max_new_tokens(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        """Return the tokens that may be drawn: as asked, or all there is room for.

        The last one is drawn but never computed, so the cache needs no place for it. Raises
        `RequestError` where there is no room for what was asked.
        """
        wanted = 1 if max_tokens is None else max_tokens
        in_context = self.context_length - num_prompt_tokens
        if in_context < wanted:
            raise RequestError(
                f"a prompt of {num_prompt_tokens} tokens and {wanted} new ones (max_tokens="
                f"{max_tokens}) exceed the context of {self.context_length} tokens: shorten the "
                f"prompt or lower max_tokens"
            )
        in_cache = self.cache_tokens + 1 - num_prompt_tokens
        if in_cache < wanted:
            needed = -(-(num_prompt_tokens + wanted - 1) // self.page_size)
            raise RequestError(
                f"a prompt of {num_prompt_tokens} tokens and {wanted} new ones (max_tokens="
                f"{max_tokens}) need {needed} cache pages but there are {self.num_pages} of "
                f"{self.page_size} tokens: shorten the prompt, lower max_tokens, or give the "
                f"cache more memory"
            )
        return min(in_context, in_cache) if max_tokens is None else max_tokens

    def num_cut(self, num_prompt_tokens: int, most: int | None, max_tokens: int | None) -> int:
        """Tokens to leave out of a prompt's head; `most` are kept, -1 are as many as fit."""
        if most is None:
            return 0
        if most == -1:
            wanted = max_tokens or 1
            most = max(min(self.context_length, self.cache_tokens + 1) - wanted, 1)
        return max(num_prompt_tokens - most, 0)

    def check_positions(self, num_tokens: int, positions: Sequence[int] | None) -> list[int]:
        """Return the positions of wanted logits; refuse those outside, and too many tokens."""
        if num_tokens > min(self.context_length, self.cache_tokens):
            raise RequestError(
                f"{num_tokens} tokens exceed the context of {self.context_length} tokens or the "
                f"cache of {self.cache_tokens}: give fewer"
            )
        if positions is None:
            return list(range(num_tokens))
        try:
            wanted = [_whole_number(position) for position in positions]
        except TypeError as error:
            raise RequestError(f"positions must be whole numbers: {error}") from error
        for position in wanted:
            if not 0 <= position < num_tokens:
                raise RequestError(f"position {position} is not one of 0..{num_tokens - 1}")
        return wanted


def _whole_number(value: object) -> int:
    """Return an integer of any library as Python's; raises `TypeError`, for a truth value too."""
    if isinstance(value, bool):
        raise TypeError(f"{value} is a truth value")
    return operator.index(value)  # type: ignore[arg-type]  # raises for what is no integer
