"""How much work one rendering of a chat template may do; knows no template language.

A character made costs one unit, a turn of a loop 64, a call 512. A template that would run for
minutes or fill the memory stops within a few seconds. What a chat needs grows with the chat, and
so does the budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, cast

__all__ = ["Budget", "BudgetExceededError"]

_STEP = 64
_CALL = 512
_WORK_LIMIT = 64 << 20
_WORK_PER_CHARACTER = 256
_SIZE_LIMIT = 16 << 20
_PART = 64
_EXPONENT_LIMIT = 64
_INTEGER_BITS_LIMIT = 4096
_PADDING_LIMIT = 1024
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs", "indent"}


class BudgetExceededError(Exception):
    """A template asked for more work or text than any chat needs."""


class Budget:
    """Counts the work of rendering a chat of `num_characters`."""

    def __init__(self, num_characters: int = 0) -> None:
        self._left = _WORK_LIMIT + _WORK_PER_CHARACTER * num_characters

    def spend(self, units: int) -> None:
        """Take `units` off. Raises BudgetExceededError when none are left."""
        self._left -= units
        if self._left < 0:
            raise BudgetExceededError("the template does more work than is allowed")

    def call(self) -> None:
        """Count one call of a function, macro or filter."""
        self.spend(_CALL)

    def steps(self, iterable: Iterable[Any]) -> Iterable[Any]:
        """Count the turns of a loop over `iterable`."""
        if isinstance(iterable, Sized):
            self.spend(_STEP * len(iterable))
            return iterable
        return self._counted(iterable)

    def _counted(self, iterable: Iterable[Any]) -> Iterator[Any]:
        for item in iterable:
            self.spend(_STEP)
            yield item

    def made(self, value: Any) -> Any:
        """Count the size of a value, parts included, and return it."""
        pending = [value]
        while pending:
            part = pending.pop()
            if isinstance(part, str | bytes):
                self.size(len(part))
            elif isinstance(part, Mapping):
                pairs = cast("Mapping[object, object]", part)
                self.spend(_PART)
                pending += [*pairs.keys(), *pairs.values()]
            elif isinstance(part, list | tuple | set | frozenset):
                items = cast("Iterable[object]", part)
                pending += items
                self.spend(_PART)
            elif isinstance(part, int) and part.bit_length() > _INTEGER_BITS_LIMIT:
                raise BudgetExceededError("the template computes too large an integer")
            else:
                self.spend(_PART)
        return value

    def shown(self, value: Any) -> Any:
        """Count the size of a value, not that of its parts, and return it."""
        if isinstance(value, str | bytes | list | tuple | dict | set):
            self.size(len(cast("Sized", value)))
        elif isinstance(value, int) and value.bit_length() > _INTEGER_BITS_LIMIT:
            raise BudgetExceededError("the template computes too large an integer")
        return value

    def size(self, count: int) -> None:
        """Count `count` characters or elements about to be made."""
        if count > _SIZE_LIMIT:
            raise BudgetExceededError(f"the template makes a text or list of size {count}")
        self.spend(1 + count)

    def before_operator(self, operator: str, left: Any, right: Any) -> None:
        """Refuse, before it is computed, a result that would be too large."""
        if operator == "**" and not (
            isinstance(right, int | float) and abs(right) <= _EXPONENT_LIMIT
        ):
            raise BudgetExceededError(f"the template raises a number to the power {right!r:.20}")
        if operator == "*":
            for repeated, times in ((left, right), (right, left)):
                if isinstance(repeated, Sized) and isinstance(times, int):
                    self.size(len(repeated) * max(0, times))
        if operator == "%" and isinstance(left, str):
            self.made(right)
            self.before_call("format", (left,))

    def before_call(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Refuse a text method or filter, called with its text first, that would grow too much."""
        texts = [argument for argument in arguments if isinstance(argument, str)]
        numbers = [abs(argument) for argument in arguments if isinstance(argument, int)]
        if name in _PADDING:
            if max(numbers, default=0) > _PADDING_LIMIT:
                raise BudgetExceededError(f"the template pads by {max(numbers)}")
            self.size(sum(map(len, texts)) * 8)
            if name == "indent" and len(texts) > 1:
                self.size(texts[0].count("\n") * len(texts[1]))
        elif name == "replace" and len(texts) == 3:  # the text, the old part, the new part
            self.size(len(texts[0]) + texts[0].count(texts[1]) * len(texts[2]))
        elif name == "join":
            parts = [part for part in arguments if isinstance(part, Sized)]
            separator = max((len(text) for text in texts), default=0)
            self.size(separator * max((len(part) for part in parts), default=0))
        elif name in {"format", "format_map"} and texts and re.search(r"\d{4}|\*|\{.*\{", texts[0]):
            raise BudgetExceededError("the template formats with a computed or very large width")
