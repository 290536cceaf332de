"""System messages that a chat template leaves out in silence; knows no template language."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from dashinfer_lab.errors import RequestError

__all__ = ["SystemMessageWarning", "render_with_system"]

_ROLES = ("system", "developer")
_PROBE = "qzxjvsystemvprobevjxzq"
_TELLING_CHARACTERS = 16


class SystemMessageWarning(UserWarning):
    """A chat template has no place for a system message, and it was put elsewhere."""


Render = Callable[[Sequence[object]], str]


def render_with_system(messages: Sequence[object], render: Render) -> str:
    """Render `messages`; a system message the template leaves out goes before the next user's text.

    That is warned of. Raises RequestError where no user's message follows.
    """
    try:
        text = render(messages)
    except RequestError as error:
        if not any(_is_system(message) for message in messages):
            raise
        raise RequestError(
            f"{error}. It may take them with the system message's text put before the user's."
        ) from error
    lost = [
        index
        for index, message in enumerate(messages)
        if _is_system(message) and not _is_shown(messages, index, text, render)
    ]
    if not lost:
        return text
    warnings.warn(
        "this model's chat template has no place for a system message: its text is put before the "
        "next user message",
        SystemMessageWarning,
        stacklevel=2,
    )
    merged = _merged(messages, lost)
    text = render(merged)
    if any(not _is_shown(merged, index, text, render) for index in range(len(merged))
           if merged[index] not in messages):  # fmt: skip
        raise RequestError(
            "the chat template leaves out the system message, also before a user's text: give "
            "another with chat_template"
        )
    return text


def _content(message: object) -> str:
    found = cast("Mapping[str, object]", message).get("content")
    return found if isinstance(found, str) else ""


def _is_system(message: object) -> bool:
    is_one = cast("Mapping[str, object]", message).get("role") in _ROLES
    return is_one and bool(_content(message).strip())


def _is_shown(messages: Sequence[object], index: int, text: str, render: Render) -> bool:
    """Whether the rendered `text` holds what message `index` says, be it trimmed or in capitals."""
    content = _content(messages[index]).strip()
    others = (_content(other) for i, other in enumerate(messages) if i != index)
    tells = len(content) >= _TELLING_CHARACTERS and not any(content in it for it in others)
    if tells and content in text:
        return True
    probe = {**cast("Mapping[str, object]", messages[index]), "content": _PROBE}
    return _PROBE in render([*messages[:index], probe, *messages[index + 1 :]]).casefold()


def _merged(messages: Sequence[object], lost: Sequence[int]) -> list[object]:
    """Put each lost text before the next user's."""
    kept: list[object] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        turn = cast("Mapping[str, object]", message)
        if index in lost:
            waiting.append(_content(message))
        elif waiting and turn.get("role") == "user":
            kept.append({**turn, "content": "\n".join([*waiting, _content(message)])})
            waiting = []
        else:
            kept.append(message)
    if waiting:
        raise RequestError(
            "the chat template leaves out the system message, and no user message follows it: put "
            "its text into a user message"
        )
    return kept
