"""A conversation as the page shows it and as the model is given it; knows neither.

The page is always drawn from the turns, so a late update of an answer that was cleared or
rewritten meanwhile cannot bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

__all__ = ["ChatMessage", "Conversation", "Turn"]


class ChatMessage(TypedDict):
    """What the model's chat template lays out; role is "system", "user" or "assistant"."""

    role: str
    content: str


@dataclass
class Turn:
    """A message and its answer; `note` is what stands under it, figures or an error."""

    message: str
    answer: str = ""
    note: str = ""
    failed: bool = False


class Conversation:
    """Turns in order. On the page each is two messages: the person's, then the answer.

    No dataclass: Gradio would turn one into a dictionary.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def begin(self, message: str) -> Turn:
        """Add a turn that awaits its answer."""
        turn = Turn(message)
        self.turns.append(turn)
        return turn

    def rewind(self, index: int) -> str | None:
        """Drop the turn that holds the page's message `index`, and all after it.

        Returns what the person had said there; None where the page shows what is no longer so.
        """
        position = index // 2
        if not 0 <= position < len(self.turns):
            return None
        message = self.turns[position].message
        del self.turns[position:]
        return message

    def clear(self) -> None:
        """Forget every turn."""
        self.turns.clear()

    def for_model(self, system: str) -> list[ChatMessage]:
        """Messages up to the last turn's, which is to be answered.

        A turn without an answer (an error, a stop before the first word) is left out: templates
        may refuse two messages of a person in a row.
        """
        messages = [ChatMessage(role="system", content=system)] if system.strip() else []
        for turn in self.turns[:-1]:
            if turn.answer:
                messages.append(ChatMessage(role="user", content=turn.message))
                messages.append(ChatMessage(role="assistant", content=turn.answer))
        messages.append(ChatMessage(role="user", content=self.turns[-1].message))
        return messages
