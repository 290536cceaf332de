"""What a caller gives in place of a prompt, messages and options; knows no model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast

from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling import SamplingParams

__all__ = [
    "NOT_UNDERSTOOD",
    "Message",
    "Prompt",
    "is_list",
    "options_for",
    "params_for",
    "prompt_text",
    "prompts_in",
]

Prompt = str | Mapping[str, Any]
"""Text, `{"prompt": text}` or `{"prompt_token_ids": [...]}`."""

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


def prompts_in(given: object) -> list[Prompt]:
    """One prompt or several as a list; a stranger to the types is named as such."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    prompts = list(cast("Iterable[object]", given)) if several else [given]
    for prompt in prompts:
        if not isinstance(prompt, str | Mapping):
            raise RequestError(f"the prompt {prompt!r:.80} {NOT_UNDERSTOOD}")
    return cast("list[Prompt]", prompts)


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
    """How each prompt is served: its priority, if any are given, and its own "cache_salt"."""
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


def _salt(prompt: Prompt) -> str | None:
    return None if isinstance(prompt, str) else prompt.get("cache_salt")
