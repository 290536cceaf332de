"""Messages to one text, by the model's chat template; knows no token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, cast

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.tokenizer.budget import Budget
from dashinfer_lab.tokenizer.sandbox import BUDGET, sandbox

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["ChatTemplate", "Message", "check_messages", "texts_of"]

Message: TypeAlias = Mapping[str, object]
"""A turn: "role" and "content", and what else the model's template reads."""


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

    def render(self, messages: Sequence[object], *, add_generation_prompt: bool = True) -> str:
        """Return the text of a chat.

        Raises RequestError with the template's own words where it refuses the messages,
        TokenizerError where it fails.
        """
        token = BUDGET.set(Budget(sum(map(len, texts_of(messages)))))
        try:
            return self._template.render(
                **self._variables,
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except RequestError:
            raise
        except Exception as error:  # a template can raise anything
            raise TokenizerError(
                f"the chat template fails: {type(error).__name__}: {error}. Give another "
                "template in tokenizer_config.json, or use generate with a prompt."
            ) from error
        finally:
            BUDGET.reset(token)


def _compile(source: str, now: Callable[[], datetime]) -> Template:
    try:
        return sandbox(now).from_string(source)
    except Exception as error:  # the compiler raises SyntaxError and RecursionError of Python's too
        raise TokenizerError(f"the chat template cannot be compiled: {error}") from error


def check_messages(messages: object) -> None:
    """Raise RequestError unless `messages` are turns with a role and a text."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError('messages must be a list of {"role": ..., "content": ...}, at least one')
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
