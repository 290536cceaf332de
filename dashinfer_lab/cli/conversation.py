"""The messages of a conversation, and the commands that change them; knows no model."""

from __future__ import annotations

from typing import TypedDict

from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.output import remark

__all__ = ["ChatMessage", "Conversation"]


class ChatMessage(TypedDict):
    """What the model's chat template lays out; role is "system", "user" or "assistant"."""

    role: str
    content: str


class Conversation:
    """A system prompt, and pairs of a message and its answer.

    system: None or nothing leaves the system prompt to the model's template.
    """

    def __init__(self, system: str | None = None) -> None:
        self._system = system or ""
        self._turns: list[ChatMessage] = []
        self.ended = False

    @property
    def is_new(self) -> bool:
        """Whether nothing was said yet."""
        return not self._turns

    def obey(self, line: str) -> str | None:
        """Return the message that `line` is; None where it is empty or was a command."""
        command, _, rest = line.strip().partition(" ")
        if not line.startswith("/"):
            return line.strip() or None
        if command == "/exit":
            self.ended = True
        elif command == "/clear":
            self._turns.clear()
            remark(text("chat.cleared"))
        elif command == "/system":
            self._system = rest.strip()
            key = "chat.system" if self._system else "chat.no_system"
            remark(text(key, prompt=self._system))
        elif command == "/help":
            remark(text("chat.help"))
        else:
            remark(text("chat.unknown", command=command))
        return None

    def with_message(self, message: str) -> list[ChatMessage]:
        """Return the messages so far and `message`, for the model to answer."""
        system = [ChatMessage(role="system", content=self._system)] if self._system else []
        return [*system, *self._turns, ChatMessage(role="user", content=message)]

    def keep(self, message: str, answer: str) -> None:
        """Add a turn; one that was stopped before its first word is left out whole.

        Templates may refuse two messages of a user in a row, or an empty answer.
        """
        if answer:
            self._turns.append(ChatMessage(role="user", content=message))
            self._turns.append(ChatMessage(role="assistant", content=answer))
