"""How much work one rendering of a chat template may do; knows no template language.

A character made costs one unit, a place in a list 8, a turn of a loop 64, a call 512, and ten
seconds are the end of all: a template that would run for minutes or fill the memory stops before.
What a chat needs grows with the chat, and so does the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sized
from time import monotonic
from typing import Any, cast

__all__ = ["Budget", "BudgetExceededError"]

_STEP = 64
_CALL = 512
_WORK_LIMIT = 32 << 20
_WORK_PER_CHARACTER = 64  # of 70 templates of the wild, none does more than 25
_WORK_PER_TEXT = 16 << 10  # some look through all turns at every turn
_SECONDS_LIMIT = 10.0
_SIZE_LIMIT = 16 << 20
_PLACE = 8
_PART = 64
_DEPTH_LIMIT = 100
_EXPONENT_LIMIT = 64
_INTEGER_BITS_LIMIT = 4096

_LISTS = (list, tuple, set, frozenset, MappingView)


class BudgetExceededError(Exception):
    """A template asked for more work or text than any chat needs."""


class Budget:
    """Counts the work of rendering a chat of `num_characters` in `num_texts`."""

    def __init__(
        self, num_characters: int = 0, num_texts: int = 0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._left = _WORK_LIMIT + _WORK_PER_CHARACTER * num_characters + _WORK_PER_TEXT * num_texts
        self._clock = clock
        self._end_seconds = clock() + _SECONDS_LIMIT

    def spend(self, units: int) -> None:
        """Take `units` off. Raises BudgetExceededError when none are left, or no time."""
        self._left -= units
        if self._left < 0:
            raise BudgetExceededError("the template does more work than is allowed")
        if self._clock() > self._end_seconds:
            raise BudgetExceededError(f"the template takes longer than {_SECONDS_LIMIT:.0f} s")

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
        """Count the size of a value, parts included, and return it; an iterator counts later."""
        if isinstance(value, Iterator):
            self.spend(_PART)
            return self._counted(cast("Iterator[Any]", value))
        pending: list[tuple[object, int]] = [(value, 0)]
        while pending:
            part, depth = pending.pop()
            if depth > _DEPTH_LIMIT:  # hashing it would overflow the stack
                raise BudgetExceededError(f"the template nests lists {depth} deep")
            if isinstance(part, str | bytes):
                self.size(len(part))
            elif isinstance(part, Mapping):
                pairs = cast("Mapping[object, object]", part)
                self.spend(_PART)
                pending += [(it, depth + 1) for pair in pairs.items() for it in pair]
            elif isinstance(part, _LISTS):
                items = cast("Iterable[object]", part)
                self.spend(_PART + _PLACE * len(cast("Sized", part)))
                pending += [(it, depth + 1) for it in items]
            elif isinstance(part, range):
                self.size(_PLACE * len(part))
            elif isinstance(part, int) and part.bit_length() > _INTEGER_BITS_LIMIT:
                raise BudgetExceededError("the template computes too large an integer")
            else:
                self.spend(_PART)
        return value

    def held(self, value: Any) -> Any:
        """Count and return what a function is given, parts included, iterators as lists."""
        if isinstance(value, Iterator):
            value = list(self._counted(cast("Iterator[Any]", value)))
        return self.made(value)

    def shown(self, value: Any) -> Any:
        """Count the size of a value, not that of its parts, and return it."""
        if isinstance(value, Iterator):
            return self.made(value)
        if isinstance(value, str | bytes):
            self.size(len(value))
        elif isinstance(value, list | tuple | dict | set | range | MappingView):
            self.size(_PLACE * len(cast("Sized", value)))
        elif isinstance(value, int) and value.bit_length() > _INTEGER_BITS_LIMIT:
            raise BudgetExceededError("the template computes too large an integer")
        return value

    def weight(self, value: Any) -> int:
        """Count the size of a value, parts included, and return it."""
        before = self._left
        self.made(value)
        return before - self._left

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
                    each = 1 if isinstance(repeated, str) else _PLACE
                    self.size(each * len(repeated) * max(0, times))
        if operator == "-":  # of the keys of two mappings
            self.made((left, right))
