"""What a user asks of sampling, in vLLM's names, checked on the spot; knows no model and no text.

An option this version does not implement is no field, so Python itself refuses it by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from dashinfer_lab.errors import RequestError

__all__ = ["MAX_LOGPROBS", "SamplingParams"]

MAX_LOGPROBS: Final = 20
"""Likeliest tokens a request may ask for at each place."""

_MAX_TEMPERATURE: Final = 1e6  # a float32 logit divided by more is all but zero
_MAX_TOP_K: Final = 2**31 - 1
_MAX_SEED: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Choose how tokens are drawn and when to stop; a bad value raises `RequestError`.

    n: independent choices for one prompt.  temperature: 0 takes the likeliest token.
    top_p: smallest set of tokens with this probability, 1 is off.  top_k: 0 and -1 are off.
    max_tokens: None takes the rest of the context.  seed: None (or -1) draws a fresh one.
    stop: texts that end the answer and are not part of it.  stop_token_ids: ids that end it.
    ignore_eos: go on past every end-of-sequence id.  logprobs: likeliest tokens to report (0 to
    20) beside the drawn one.  skip_special_tokens: leave special tokens out of the text.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int | None = 16
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        _check_integer("n", self.n, low=1)
        _check_number("temperature", self.temperature)
        if not 0 <= self.temperature <= _MAX_TEMPERATURE:
            _refuse("temperature", self.temperature, f"a number from 0 to {_MAX_TEMPERATURE:g}")
        _check_number("top_p", self.top_p)
        if not 0 < self.top_p <= 1:
            _refuse("top_p", self.top_p, "a number above 0 and at most 1 (1 is off)")
        _check_integer("top_k", self.top_k, low=-1, high=_MAX_TOP_K)
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, low=1)
        if self.seed is not None:
            _check_integer("seed", self.seed, low=-1, high=_MAX_SEED)
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, low=0, high=MAX_LOGPROBS)
        _check_flag("ignore_eos", self.ignore_eos)
        _check_flag("skip_special_tokens", self.skip_special_tokens)
        self._normalise()

    def _normalise(self) -> None:
        object.__setattr__(self, "top_k", max(self.top_k, 0))
        object.__setattr__(self, "seed", None if self.seed == -1 else self.seed)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_ids(self.stop_token_ids))

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Stop texts; `stop` once it is checked."""
        return _stop_strings(self.stop)


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    raise RequestError(f"{name}={value!r} is not possible: it must be {wanted}")


def _check_integer(name: str, value: object, *, low: int, high: int | None = None) -> None:
    wanted = (
        f"a whole number from {low} to {high}"
        if high is not None
        else (f"a whole number of at least {low}")
    )
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse(name, value, wanted)
    if value < low or (high is not None and value > high):
        _refuse(name, value, wanted)


def _check_number(name: str, value: object) -> None:
    # Compared, because an integer may be too large to become a float.
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not -math.inf < value < math.inf
    ):
        _refuse(name, value, "a finite number")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        _refuse(name, value, "True or False")


def _stop_strings(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    texts: tuple[object, ...] = (stop,) if isinstance(stop, str) else _as_tuple("stop", stop)
    checked: list[str] = []
    for text in texts:
        if not isinstance(text, str) or not text:
            _refuse("stop", stop, "a text or a list of texts, none of them empty")
        checked.append(text)
    return tuple(checked)


def _stop_ids(ids: object) -> tuple[int, ...]:
    if ids is None:
        return ()
    checked: list[int] = []
    for token_id in _as_tuple("stop_token_ids", ids):
        if not isinstance(token_id, int) or isinstance(token_id, bool) or token_id < 0:
            _refuse("stop_token_ids", ids, "a list of token ids, none of them negative")
        checked.append(token_id)
    return tuple(checked)


def _as_tuple(name: str, value: object) -> tuple[object, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        _refuse(name, value, "a list")
    return tuple(value)  # pyright: ignore[reportUnknownArgumentType]  # elements are checked after
