"""What happens in a conversation, as views that follow each other; knows no components."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashinfer_lab.demo.answer import Answer, answering
from dashinfer_lab.demo.context import EXPECTED, DemoContext, Sampling, with_stated
from dashinfer_lab.demo.conversation import Conversation, Turn

if TYPE_CHECKING:
    from dashinfer_lab.demo.shelf import Choice

__all__ = ["Chat", "Settings", "View"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What an answer is made with."""

    choice: Choice
    system: str
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class View:
    """What the page shows now: turns, whether an answer is coming, and what the box holds.

    box: None leaves it as it is.
    """

    turns: Sequence[Turn]
    is_busy: bool = False
    box: str | None = None


class Chat:
    """The conversations of all tabs; each tab brings its own `Conversation`."""

    def __init__(self, context: DemoContext) -> None:
        self._context: Final = context
        self.say: Final = context.say

    async def send(
        self, session: str, conversation: Conversation, message: str, settings: Settings
    ) -> AsyncGenerator[View]:
        """Answer `message`; nothing but blanks is no message."""
        if not message.strip():
            yield View(conversation.turns)
            return
        conversation.begin(message.strip())
        yield View(conversation.turns, is_busy=True, box="")
        async with aclosing(self._answer(session, conversation, settings)) as views:
            async for view in views:
                yield view

    async def rewrite(
        self,
        session: str,
        conversation: Conversation,
        index: int,
        message: str | None,
        settings: Settings,
    ) -> AsyncGenerator[View]:
        """Go back to the page's message `index` and answer it anew, or `message` in its stead."""
        self.stop(session)
        former = conversation.rewind(index)
        wanted = former if message is None else message
        async with aclosing(self.send(session, conversation, wanted or "", settings)) as views:
            async for view in views:
                yield View(view.turns, view.is_busy)

    def stop(self, session: str) -> None:
        """End what this tab is being answered; what was written stays."""
        self._context.running.stop(session)

    def clear(self, session: str, conversation: Conversation) -> View:
        """Begin anew."""
        self.stop(session)
        conversation.clear()
        return View(conversation.turns, box="")

    async def _answer(
        self, session: str, conversation: Conversation, settings: Settings
    ) -> AsyncGenerator[View]:
        turn, messages = conversation.turns[-1], conversation.for_model(settings.system)
        with self._context.running.work(session) as stop:
            try:
                sampled = settings.sampling.params()
                async with self._context.shelf.lent(settings.choice) as llm:
                    params = with_stated(sampled, llm.sampling_defaults)
                    async with aclosing(answering(llm, messages, params, stop)) as answers:
                        async for answer in answers:
                            self._take(answer, turn)
                            yield View(conversation.turns, is_busy=answer.finish_reason is None)
            except EXPECTED as error:
                turn.note, turn.failed = (
                    self.say("answer.error", message=self.say.error(error)),
                    True,
                )
        yield View(conversation.turns)

    def _take(self, answer: Answer, turn: Turn) -> None:
        turn.answer = answer.text
        if answer.finish_reason is not None:
            turn.note, turn.failed = answer.note(self.say), answer.error is not None
