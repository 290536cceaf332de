"""What filters and text methods of a template would make, told from what they are given.

Each rule refuses a call whose result would be too large before anything is made, by raising
BudgetExceededError. Knows no template language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, Final, cast

from dashinfer_lab.tokenizer.budget import Budget, BudgetExceededError

__all__ = ["before_call", "before_format", "before_json"]

_Arguments = tuple[Any, ...]

_WIDTH_LIMIT: Final = 1024
_PRECISION_LIMIT: Final = 64
_LAYOUT_LIMIT: Final = 256
_INDENT_LIMIT: Final = 16
_FIELD: Final = 1000  # characters of a field whose width has three digits
_PER_UNIT: Final = 20  # characters that show one unit of work: of escapes, of an integer's 64
_SLOW_FACTOR: Final = 8
_WIDE: Final = re.compile(
    r"%[^%a-zA-Z]*(?:\d{4}|\*)"  # a width of four digits, or one that is computed
    r"|\{[^{}]*(?:\d{4}|:[^{}]*\{)"
)


def before_call(budget: Budget, name: str, arguments: _Arguments) -> None:
    """Refuse a call of `name` whose first argument is the text or list that it works on."""
    rule = _RULES.get(name)
    if rule is not None:
        rule(budget, arguments)


def before_format(budget: Budget, text: str, values: Iterable[Any]) -> None:
    """Refuse a text whose fields, were each to show all of `values`, would make too much."""
    if _WIDE.search(text):
        raise BudgetExceededError("the template formats with a computed or very large width")
    shown = _FIELD
    for value in values:
        if isinstance(value, str):
            shown += len(value)
        elif value is not None and not isinstance(value, int | float):
            shown += _PER_UNIT * budget.weight(value)
    budget.size(len(text) + shown * (text.count("%") + text.count("{")))


def before_json(budget: Budget, value: Any, indent: object, separators: object) -> None:
    """Refuse JSON of `value` whose indents, a line for each part, would make too much."""
    words = cast("Iterable[object]", separators or ())
    if any(isinstance(it, str) and len(it) > _INDENT_LIMIT for it in (indent, *words)):
        raise BudgetExceededError("the template asks for JSON with very long separators")
    if isinstance(indent, int):
        if abs(indent) > _INDENT_LIMIT:
            raise BudgetExceededError(f"the template indents JSON by {indent}")
        budget.size(max(indent, 0) * _indents(value))


def _indents(value: object) -> int:
    """How many levels of indent the lines of `value` have, summed up."""
    total, pending = 0, [(value, 1)]
    while pending:
        part, level = pending.pop()
        if isinstance(part, Mapping):
            part = list(cast("Mapping[object, object]", part).values())
        if isinstance(part, list | tuple):
            parts = cast("list[object]", part)
            total += level * (len(parts) + 1)
            pending += [(it, level + 1) for it in parts]
    return total


def _texts(arguments: _Arguments) -> list[str]:
    return [it for it in arguments if isinstance(it, str)]


def _largest(arguments: _Arguments) -> int:
    """The largest number after the first argument."""
    return max((abs(it) for it in arguments[1:] if isinstance(it, int)), default=0)


def _pads(filled: str | None) -> Callable[[Budget, _Arguments], None]:
    """Return the rule for one that pads: a text once, or at each character of `filled`."""

    def rule(budget: Budget, arguments: _Arguments) -> None:
        width = _largest(arguments)
        if width > _WIDTH_LIMIT:
            raise BudgetExceededError(f"the template pads by {width}")
        text, *words = _texts(arguments) or [""]
        places = 1 + (text.count(filled) if filled else 0)
        budget.size(len(text) + places * max(width, *map(len, words), 0))

    return rule


def _replaces(budget: Budget, arguments: _Arguments) -> None:
    text, *parts = _texts(arguments) or [""]
    if len(parts) == 2:  # given by name, they come in any order
        grown = [text.count(old) * len(new) for old, new in (parts, parts[::-1])]
        budget.size(len(text) + max(grown))


def _joins(budget: Budget, arguments: _Arguments) -> None:
    separator = max(map(len, _texts(arguments)), default=0)
    counts = [len(it) for it in arguments if isinstance(it, Sized)]
    budget.size(separator * max(counts, default=0))


def _formats(budget: Budget, arguments: _Arguments) -> None:
    if arguments and isinstance(arguments[0], str):
        before_format(budget, arguments[0], arguments[1:])


def _fills(budget: Budget, arguments: _Arguments) -> None:
    budget.size(64 * _largest(arguments))


def _rounds(_: Budget, arguments: _Arguments) -> None:
    if _largest(arguments) > _PRECISION_LIMIT:
        raise BudgetExceededError(f"the template rounds to {_largest(arguments)} places")


def _sums(_: Budget, arguments: _Arguments) -> None:
    if any(isinstance(it, list | tuple) for it in arguments[1:]):
        raise BudgetExceededError("the template adds up lists, each sum a new one")


def _tells_time(_: Budget, arguments: _Arguments) -> None:
    if max(map(len, _texts(arguments)), default=0) > _LAYOUT_LIMIT:
        raise BudgetExceededError("the template tells the time in a very long layout")


def _is_slow(budget: Budget, arguments: _Arguments) -> None:
    budget.size(_SLOW_FACTOR * max(map(len, _texts(arguments)), default=0))


_ONCE, _EACH_LINE, _EACH_TAB = _pads(None), _pads("\n"), _pads("\t")
_RULES: Final[Mapping[str, Callable[[Budget, _Arguments], None]]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _ONCE),
    "indent": _EACH_LINE,
    "expandtabs": _EACH_TAB,
    "replace": _replaces,
    "join": _joins,
    **dict.fromkeys(("format", "format_map"), _formats),
    **dict.fromkeys(("batch", "slice"), _fills),
    "round": _rounds,
    "sum": _sums,
    "strftime_now": _tells_time,
    **dict.fromkeys(
        ("list", "split", "rsplit", "splitlines", "striptags", "title", "unescape", "urlencode"),
        _is_slow,
    ),
    "wordcount": _is_slow,
}
