"""Messages to one text, by the model's chat template; knows no token ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.tokenizer.budget import Budget
from dashinfer_lab.tokenizer.sandbox import BUDGET, sandbox
from dashinfer_lab.tokenizer.system_messages import render_with_system

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["ChatTemplate", "Message", "check_messages", "check_tools", "read_template", "texts_of"]

Message: TypeAlias = Mapping[str, object]
"""A turn: "role" and "content", and what else the model's template reads."""

_SOURCE_LIMIT = 1 << 16
_ERROR_LIMIT = 2000


class ChatTemplate:
    """A compiled template and the special tokens it may name."""

    def __init__(
        self,
        source: str,
        variables: Mapping[str, object],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._variables = variables
        self._template = _compile(source, now)

    def render(
        self,
        messages: Sequence[object],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[object] | None = None,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """Return the text of a chat, with no system message left out.

        tools: what the model may call, as the template reads it.  variables: what else it reads.
        Raises RequestError with the template's own words where it refuses the messages,
        TokenizerError where it fails.
        """
        given: dict[str, object] = {
            "documents": None,
            **self._variables,
            **(variables or {}),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        decoded = [_with_decoded_calls(message) for message in messages]
        text = render_with_system(decoded, lambda turns: self._rendered(turns, given))
        if tools and not any(name in text for name in _names_of(tools)):
            raise RequestError(
                "the chat template has no place for tools: describe them in a message, or give "
                "another with chat_template"
            )
        return text

    def _rendered(self, messages: Sequence[object], variables: Mapping[str, object]) -> str:
        texts = (*texts_of(messages), *texts_of(variables))
        token = BUDGET.set(Budget(sum(map(len, texts)), len(texts)))
        try:
            return self._template.render({**variables, "messages": messages})
        except RequestError:
            raise
        except Exception as error:  # a template can raise anything
            raise TokenizerError(
                f"the chat template fails: {type(error).__name__}: {str(error)[:_ERROR_LIMIT]}. "
                "Give another with chat_template, or use generate with a prompt."
            ) from error
        finally:
            BUDGET.reset(token)


def read_template(given: str | Path) -> str:
    """Return a template given as its text, or as the path of a file. Raises TokenizerError."""
    if not isinstance(given, Path) and any(mark in given for mark in ("{{", "{%", "\n")):
        return given
    path = Path(given)
    try:
        if path.stat().st_size > _SOURCE_LIMIT * 4:
            raise TokenizerError(f"{path} is no chat template: it has {path.stat().st_size} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise TokenizerError(f"the chat template {path} cannot be read: {reason}") from error


def _with_decoded_calls(message: object) -> object:
    """Return a message whose tool calls have their arguments decoded once, as templates read them.

    Raises RequestError for arguments that are no JSON object.
    """
    turn = cast("Mapping[str, object]", message)
    calls = turn.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**turn, "tool_calls": [_decoded_call(call) for call in cast("list[object]", calls)]}


def _decoded_call(call: object) -> object:
    fields = cast("Mapping[str, object]", call) if isinstance(call, Mapping) else {}
    function = fields.get("function")
    stated = cast("Mapping[str, object]", function) if isinstance(function, Mapping) else fields
    arguments = stated.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        decoded = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        raise RequestError(
            f"the arguments of the tool call {stated.get('name')!r:.80} are {arguments!r:.200}, "
            "no JSON object"
        )
    changed = {**stated, "arguments": decoded}
    return {**fields, "function": changed} if stated is function else changed


def _names_of(tools: Sequence[object]) -> Iterator[str]:
    """Yield the names of tools, described as OpenAI does or bare."""
    for tool in tools:
        described = cast("Mapping[str, object]", tool)
        function = described.get("function")
        named = cast("Mapping[str, object]", function) if isinstance(function, Mapping) else {}
        yield str(named.get("name") or described.get("name") or next(texts_of(tool), ""))


def check_tools(tools: object) -> None:
    """Raise RequestError unless `tools` is None or a list of descriptions."""
    if tools is None:
        return
    several = isinstance(tools, Sequence) and not isinstance(tools, str)
    if not several or not all(isinstance(tool, Mapping) for tool in cast("list[object]", tools)):
        raise RequestError(
            f"tools={tools!r:.80} must be a list of mappings, each with a name, a description and "
            "parameters"
        )


def _compile(source: str, now: Callable[[], datetime]) -> Template:
    if len(source) > _SOURCE_LIMIT:
        raise TokenizerError(
            f"the chat template has {len(source)} characters, {_SOURCE_LIMIT} are allowed"
        )
    try:
        return sandbox(now).from_string(source)
    except Exception as error:  # the compiler raises SyntaxError and RecursionError of Python's too
        raise TokenizerError(
            f"the chat template cannot be compiled: {str(error)[:_ERROR_LIMIT]}"
        ) from error


def check_messages(messages: object) -> None:
    """Raise RequestError unless `messages` are turns with a role and a text."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError(
            'messages must be a list of {"role": ..., "content": ...}, at least one; a text '
            "goes to `generate`"
        )
    for index, message in enumerate(cast("Sequence[object]", messages)):
        if not isinstance(message, Mapping):
            raise RequestError(f"message {index} is a {type(message).__name__}, not a mapping")
        turn = cast("Mapping[object, object]", message)
        if not isinstance(turn.get("role"), str):
            raise RequestError(f"message {index} has no role; give one, such as 'user'")
        if turn.get("content") is None and turn.get("role") != "assistant":
            raise RequestError(f"message {index} has no content; give it a text")
        if not isinstance(turn.get("content"), str | None):
            kind = type(turn.get("content")).__name__
            raise RequestError(f"the content of message {index} is a {kind}, not text")


def texts_of(value: object) -> Iterator[str]:
    """Yield every text within messages, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield from texts_of(key)
            yield from texts_of(item)
    elif isinstance(value, list | tuple):
        for item in cast("Sequence[object]", value):
            yield from texts_of(item)
