"""Checks of single options: each returns the value in its one form, or refuses it by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, cast

from dashinfer_lab.errors import RequestError
from dashinfer_lab.numbers import is_whole

__all__ = [
    "check_biases",
    "check_callables",
    "check_flag",
    "check_ids",
    "check_integer",
    "check_number",
    "check_sequences",
    "check_texts",
    "refuse",
    "shown",
]

_LARGEST_BIAS = 1e6  # beyond all logits; a token is banned by bad words or allowed ids


def refuse(name: str, value: object, wanted: str) -> NoReturn:
    """Raise `RequestError` for an option."""
    raise RequestError(f"{name}={shown(value)} is not possible: it must be {wanted}")


def shown(value: object) -> str:
    """A value in a message's words, at most 200 characters; Python writes no number of 5,000."""
    try:
        return f"{value!r:.200}"
    except ValueError:
        return f"({type(value).__name__})"


def check_integer(name: str, value: object, *, low: int, high: int | None = None) -> None:
    """Refuse what is no whole number within limits; a truth value is none."""
    wanted = (
        f"a whole number from {low} to {high}"
        if high is not None
        else (f"a whole number of at least {low}")
    )
    if not is_whole(value):
        refuse(name, value, wanted)
    if value < low or (high is not None and value > high):
        refuse(name, value, wanted)


def check_number(
    name: str, value: object, low: float, high: float, *, above: bool = False, note: str = ""
) -> None:
    """Refuse what is no number from `low` (or `above` it) to `high`; NaN is none."""
    # Compared, because an integer may be too large to become a float.
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not -math.inf < value < math.inf
    ):
        refuse(name, value, "a finite number")
    if not low <= value <= high or (above and value <= low):
        span = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        refuse(name, value, f"a number {span}{note}")


def check_flag(name: str, value: object) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool):
        refuse(name, value, "True or False")


def check_texts(name: str, texts: object) -> tuple[str, ...]:
    """A text, or a list of texts, none of them empty; each once."""
    if texts is None:
        return ()
    given: tuple[object, ...] = (texts,) if isinstance(texts, str) else _as_tuple(name, texts)
    checked: list[str] = []
    for text in given:
        if not isinstance(text, str) or not text:
            refuse(name, texts, "a text or a list of texts, none of them empty")
        checked.append(text)
    return tuple(dict.fromkeys(checked))


def check_ids(name: str, ids: object) -> tuple[int, ...]:
    """A list of token ids; each once."""
    return tuple(dict.fromkeys(_ids(name, ids, ids))) if ids is not None else ()


def check_sequences(name: str, sequences: object) -> tuple[tuple[int, ...], ...]:
    """A list of lists of token ids, none of them empty; each once."""
    if sequences is None:
        return ()
    checked: list[tuple[int, ...]] = []
    for each in _as_tuple(name, sequences):
        if not isinstance(each, Sequence) or not each:
            refuse(name, sequences, "a list of lists of token ids, none of them empty")
        checked.append(_ids(name, cast("Sequence[object]", each), sequences))
    return tuple(dict.fromkeys(checked))


def check_biases(biases: object) -> dict[int, float]:
    """logit_bias: token id to finite number; ids may be spelled as text, as JSON has them."""
    name = "logit_bias"
    if not isinstance(biases, Mapping):
        refuse(name, biases, "a mapping of token ids to numbers")
    checked: dict[int, float] = {}
    for key, bias in cast("Mapping[object, object]", biases).items():
        token_id = int(key) if isinstance(key, str) and key.isdecimal() else key
        if not is_whole(token_id) or token_id < 0:
            refuse(name, biases, f"a mapping of token ids, and {key!r} is none")
        check_number(f"{name}[{token_id}]", bias, -_LARGEST_BIAS, _LARGEST_BIAS)
        checked[token_id] = float(cast("float", bias))
    return checked


def check_callables(name: str, functions: object) -> tuple[Callable[..., object], ...]:
    """A list of functions."""
    if functions is None:
        return ()
    given = _as_tuple(name, functions)
    for function in given:
        if not callable(function):
            refuse(name, functions, "a list of functions")
    return cast("tuple[Callable[..., object], ...]", given)


def _ids(name: str, ids: object, whole: object) -> tuple[int, ...]:
    checked: list[int] = []
    for token_id in _as_tuple(name, ids):
        if not is_whole(token_id) or token_id < 0:
            refuse(name, whole, "a list of token ids, none of them negative")
        checked.append(token_id)
    return tuple(checked)


def _as_tuple(name: str, value: object) -> tuple[object, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        refuse(name, value, "a list")
    return tuple(cast("Sequence[object]", value))
