"""What a caller gives in place of a prompt, messages and options; knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any, ParamSpec, TypeGuard, TypeVar, cast

from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling import SamplingParams

__all__ = [
    "NOT_UNDERSTOOD",
    "Message",
    "Prompt",
    "chat_layout",
    "is_list",
    "named_options",
    "options_for",
    "params_for",
    "prompt_text",
    "prompts_in",
    "require_known_keys",
    "require_messages",
    "salted",
    "text_or_ids",
]

P = ParamSpec("P")
T = TypeVar("T")

Prompt = str | Mapping[str, Any]
"""Text, `{"prompt": text}` or `{"prompt_token_ids": [...]}`, the latter perhaps with a
"cache_salt"."""

_SAMPLING_OPTIONS = frozenset(field.name for field in fields(SamplingParams))

_KEYS = ("prompt", "prompt_token_ids", "cache_salt")

Message = Mapping[str, Any]
"""`{"role": "system" | "user" | "assistant", "content": text}`."""

NOT_UNDERSTOOD = (
    'is not understood: give text, {"prompt": text} or {"prompt_token_ids": [...]}, or a list of '
    "such prompts"
)
"""How a message about a prompt of another kind ends."""


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a sequence, and no text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def named_options(call: Callable[P, T]) -> Callable[P, T]:
    """Let a call raise `RequestError` for options that it does not have, and say the way out."""
    known = [name for name in signature(call).parameters if name != "self"]

    @wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in kwargs.items():
            if name not in known:
                way_out = f"give SamplingParams({name}={value!r:.80}) as its sampling_params"
                if "sampling_params" not in known or name not in _SAMPLING_OPTIONS:
                    way_out = f"leave {name}={value!r:.80} away, or give one of {', '.join(known)}"
                raise RequestError(f"{call.__name__} has no option {name}: {way_out}")
        return call(*args, **kwargs)

    return checked


def prompts_in(given: object) -> list[Prompt]:
    """One prompt or several as a list; a stranger to the types is named as such.

    Raises RequestError.
    """
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    prompts = list(cast("Iterable[object]", given)) if several else [given]
    for prompt in prompts:
        if isinstance(prompt, Integral):
            raise RequestError(
                f"the prompt {prompt!r:.80} is a number; token ids are given as "
                '{"prompt_token_ids": [...]}'
            )
        if not isinstance(prompt, str | Mapping):
            raise RequestError(f"the prompt {prompt!r:.80} {NOT_UNDERSTOOD}")
    return cast("list[Prompt]", prompts)


def require_known_keys(prompt: Prompt) -> None:
    """Raise `RequestError` for keys of a prompt that mean nothing here; None asks for nothing."""
    if isinstance(prompt, Mapping):
        unknown = [key for key, value in prompt.items() if key not in _KEYS and value is not None]
        if {"role", "content"} <= set(unknown):
            raise RequestError(
                f"the prompt {dict(prompt)!r:.80} is a message; give a list of messages to `chat`"
            )
        if unknown:
            raise RequestError(
                f"a prompt has keys that mean nothing here: {unknown!r:.200}; known are "
                f"{', '.join(_KEYS)}"
            )


def text_or_ids(prompt: Prompt) -> str | Iterable[int]:
    """What is to be encoded of a prompt, or its ids; raises `RequestError`."""
    require_known_keys(prompt)
    if isinstance(prompt, str):
        return prompt
    if "prompt_token_ids" in prompt:
        return prompt["prompt_token_ids"]
    if isinstance(prompt.get("prompt"), str):
        return prompt["prompt"]
    raise RequestError(f"a prompt with keys {list(prompt)!r:.80} {NOT_UNDERSTOOD}")


def require_messages(given: object) -> None:
    """Raise `RequestError` for what is no list of messages; it may be empty."""
    if not is_list(given) or not all(isinstance(each, Mapping) for each in given):
        raise RequestError(
            f'messages={given!r:.80} must be a list of {{"role": ..., "content": ...}}'
        )


def chat_layout(chat_template: object, kwargs: object, **options: object) -> dict[str, Any]:
    """How a template is applied: vLLM's options of `chat`, in those of the tokenizer.

    Raises RequestError.
    """
    if not isinstance(chat_template, str | Path | None):
        raise RequestError(
            f"chat_template={chat_template!r:.80} must be a text, the path of a file, or None"
        )
    given = {} if kwargs is None else kwargs
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise RequestError(f"chat_template_kwargs={kwargs!r:.80} must be a mapping of names")
    if "messages" in given:
        raise RequestError("chat_template_kwargs has messages: give them as such")
    return {**options, **cast("Mapping[str, Any]", given), "chat_template": chat_template}


def prompt_text(prompt: Prompt) -> str | None:
    """The text of a prompt, if it has one."""
    return prompt if isinstance(prompt, str) else prompt.get("prompt")


def params_for(count: int, params: object) -> list[SamplingParams]:
    """One `SamplingParams` for each of `count` prompts; raises `RequestError`."""
    if isinstance(params, SamplingParams):
        return [params] * count
    listed = list(params) if is_list(params) else [params]
    chosen = [each for each in listed if isinstance(each, SamplingParams)]
    if len(chosen) != len(listed):
        raise RequestError(
            f"sampling_params={params!r:.80} is not possible: give a SamplingParams, or a list of "
            "one for each prompt"
        )
    if len(chosen) != count:
        raise RequestError(
            f"{len(chosen)} sampling params for {count} prompts: give one, or {count}"
        )
    return chosen


def options_for(prompts: Sequence[Prompt], priority: object) -> list[RequestOptions]:
    """How each prompt is served: its priority, if any are given, and its own "cache_salt".

    Raises RequestError.
    """
    priorities = [0] * len(prompts) if priority is None else priority
    if not is_list(priorities) or len(priorities) != len(prompts):
        raise RequestError(
            f"priority={priority!r:.80} is not possible: give a list of whole numbers, one for "
            f"each of {len(prompts)} prompts"
        )
    return [
        RequestOptions(priority=cast("int", each), cache_salt=_salt(prompt))
        for each, prompt in zip(priorities, prompts, strict=True)
    ]


def salted(prompt: object, options: RequestOptions | None) -> RequestOptions | None:
    """Options with the "cache_salt" of a prompt, if it has one, which they must not contradict.

    Raises RequestError.
    """
    named = cast("Mapping[str, Any]", prompt) if isinstance(prompt, Mapping) else {}
    salt = named.get("cache_salt")
    if salt is None:
        return options
    before = RequestOptions() if options is None else options
    if before.cache_salt not in (None, salt):
        raise RequestError(
            f"cache_salt={salt!r:.80} of the prompt contradicts {before.cache_salt!r:.80} of the "
            "options: give one"
        )
    return replace(before, cache_salt=salt)


def _salt(prompt: Prompt) -> str | None:
    return None if isinstance(prompt, str) else prompt.get("cache_salt")
