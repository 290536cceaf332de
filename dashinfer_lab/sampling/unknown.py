"""What is said of an option that sampling does not have: why, and what to do, or what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, Final, TypeVar

from dashinfer_lab.errors import RequestError

__all__ = ["refusing_unknown"]

_BEAMS: Final = "it belongs to LLM.beam_search and BeamSearchParams"
_GRAMMARS: Final = "answers are held to no grammar: check their text, or give logits_processors"
_REASONS: Final = {
    "best_of": "ask for n answers, and choose by their cumulative_logprob",
    "use_beam_search": _BEAMS,
    "beam_width": _BEAMS,
    "early_stopping": _BEAMS,
    "length_penalty": _BEAMS,
    "guided_decoding": _GRAMMARS,
    "structured_outputs": _GRAMMARS,
    "max_new_tokens": "its name here is max_tokens",
    "do_sample": "temperature=0 takes the likeliest token, any other draws one",
    "repetition_detection": "no_repeat_ngram_size and repetition_penalty keep from repeating",
    "extra_args": "there is nothing that reads them",
}
C = TypeVar("C", bound=type)


def refusing_unknown(cls: C) -> C:
    """Let a dataclass refuse options that it does not have as `RequestError`, with the way out."""
    made: Callable[..., None] = cls.__init__
    known = [each.name for each in fields(cls)]

    @wraps(made)
    def checked(self: object, /, *args: Any, **options: Any) -> None:
        for name, value in options.items():
            if name not in known:
                raise RequestError(_refusal(name, value, known))
        made(self, *args, **options)

    cls.__init__ = checked
    return cls


def _refusal(name: str, value: object, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    if name in _REASONS:
        told = f": {_REASONS[name]}"
    else:
        told = f"; did you mean {near[0]}?" if near else f": there are {', '.join(known)}"
    return f"{name}={value!r:.80} is no option of sampling{told}"
