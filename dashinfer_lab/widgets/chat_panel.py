"""A chat in a cell: stop, regenerate, sampling controls, tokens a second while it writes."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.error_words import error_words
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.widgets.aside import begin_aside
from dashinfer_lab.widgets.chat_controls import ChatControls
from dashinfer_lab.widgets.chat_notes import transcript_html
from dashinfer_lab.widgets.chat_session import ChatSession, Turn
from dashinfer_lab.widgets.sampling_controls import chat_params
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["ChatPanel"]


class ChatPanel(View):
    """Chat with `llm` on a thread of its own; controls change `params`, the model's by default."""

    def __init__(
        self,
        llm: LLM,
        *,
        system: str = "",
        params: SamplingParams | None = None,
        lang: Language | None = None,
    ) -> None:
        super().__init__("chat.title", lang)
        if not hasattr(llm, "submit"):
            raise ConfigError(f"ChatPanel({llm!r:.80}) is not possible: give a loaded LLM")
        self.params: SamplingParams = params or chat_params(llm)
        self.session: Final = ChatSession(llm, system, self.say, self._draw)
        self._thread: threading.Thread | None = None
        self._refused = ""

    @property
    def turns(self) -> list[Turn]:
        """What was said, in order."""
        return self.session.turns

    def ask(self, message: str) -> str:
        """Say `message`, wait, and return the answer; an interrupt keeps what came of it."""
        turn = self.session.answer(message, self.params)
        if turn.error is not None:
            raise turn.error
        return turn.answer

    def send(self, message: str) -> None:
        """Say `message` and return at once; nothing while an answer is on its way."""
        if not message.strip() or self.session.busy or not self.wait(0):
            return
        self._thread = begin_aside(lambda: self.session.answer(message, self.params))
        while not self.session.busy and not self.wait(0.001):
            continue  # until Stop has something to stop

    def stop(self) -> None:
        """End the answer that is on its way, in the engine."""
        self.session.stop()

    def regenerate(self) -> None:
        """Answer the last message again; stops first what is on its way."""
        self._end()
        if self.turns:
            self.send(self.turns.pop().message)

    def clear(self) -> None:
        """Begin a new chat."""
        self.session.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the answer of `send`; False after `timeout` seconds."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def set_sampling(self, **changes: Any) -> None:
        """Change what the controls show, as they do; raises `RequestError` for a bad value."""
        self.params = replace(self.params, **changes)

    def __repr__(self) -> str:
        lines = (f"> {turn.message}\n{turn.answer}\n[{turn.note}]" for turn in self.turns)
        return "\n".join(lines) or self.say("chat.empty")

    def _end(self) -> None:
        self.stop()
        self.wait()

    def _controls(self) -> list[Any]:
        acts = {"send": self.send, "stop": self.stop, "again": self.regenerate, "clear": self.clear}
        self._parts = ChatControls(self.say, acts, self.params, self._sampled)
        self._parts.enable(busy=self.session.busy, begun=bool(self.turns))
        return [self.picture, *self._parts.widgets]

    def _sampled(self, name: str, value: Any) -> None:
        try:
            self.set_sampling(**{name: value})
            self._refused = ""
        except RequestError as error:
            self._refused = note(error_words(error, self.lang), "bad")
        self._draw()

    def _draw(self) -> None:
        self.redraw()
        if self.live:
            self._parts.enable(busy=self.session.busy, begun=bool(self.turns))

    def _body(self) -> str:
        return transcript_html(list(self.turns), self.say("chat.empty")) + self._refused
