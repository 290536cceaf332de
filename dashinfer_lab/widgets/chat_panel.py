"""A chat in a cell: stop, regenerate, sampling controls, tokens a second while it writes."""

from __future__ import annotations

import threading
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.widgets.chat_session import ChatSession, Turn
from dashinfer_lab.widgets.controls import button, row
from dashinfer_lab.widgets.sampling_controls import sampling_controls
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["ChatPanel"]

_LONGEST_ANSWER: Final = 256


class ChatPanel(View):
    """Chat with `llm`. `params` is what its controls change; the model's defaults where None.

    Answers come on a thread of their own, so that Stop is heard; `ask` waits for one.
    """

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
        default = replace(llm.default_sampling_params, max_tokens=_LONGEST_ANSWER)
        self.params: SamplingParams = params or default
        self.session: Final = ChatSession(llm, system, self.say, self._draw)
        self._thread: threading.Thread | None = None
        self._refused = ""

    @property
    def turns(self) -> list[Turn]:
        """What was said, in order."""
        return self.session.turns

    def ask(self, message: str) -> str:
        """Say `message`, wait, and return the answer; an interrupt keeps what came of it."""
        return self.session.answer(message, self.params).answer

    def send(self, message: str) -> None:
        """Say `message` and return at once; nothing while an answer is on its way."""
        if not message.strip() or self.session.busy:
            return
        self._thread = threading.Thread(
            target=self.session.answer, args=(message, self.params), name="dl-chat", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the answer that is on its way, in the engine."""
        self.session.stop()

    def regenerate(self) -> None:
        """Answer the last message again; stops first what is on its way."""
        self.stop()
        self.wait()
        if self.turns:
            self.send(self.turns.pop().message)

    def clear(self) -> None:
        """Begin a new chat."""
        self.session.clear()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the answer of `send`; False after `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

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
        from ipywidgets import Accordion, Layout, Textarea

        say = self.say
        wide = Layout(width="auto", height="64px")
        self._box = Textarea(placeholder=say("chat.placeholder"), layout=wide)
        self._buttons = {
            "send": button(say("chat.send"), self._send_box, primary=True),
            "stop": button(say("chat.stop"), self.stop),
            "again": button(say("chat.again"), self.regenerate),
            "clear": button(say("chat.clear"), self.clear),
        }
        sliders = sampling_controls(self.params, say, self._sampled)
        sampling = Accordion([sliders], titles=[say("chat.sampling")], selected_index=None)
        self._enable()
        return [self.picture, self._box, row(*self._buttons.values()), sampling]

    def _send_box(self) -> None:
        message, self._box.value = self._box.value, ""
        self.send(message)

    def _sampled(self, name: str, value: Any) -> None:
        try:
            self.set_sampling(**{name: value})
            self._refused = ""
        except RequestError as error:
            self._refused = note(str(error), "bad")
        self._draw()

    def _enable(self) -> None:
        busy = self.session.busy
        self._buttons["send"].disabled = busy
        self._buttons["stop"].disabled = not busy
        self._buttons["again"].disabled = not self.turns

    def _draw(self) -> None:
        self.redraw()
        if self.live:
            self._enable()

    def _body(self) -> str:
        """Text stands as the model wrote it: nothing in it is markup."""
        turns = "".join(
            f'<div class="dl-turn dl-user">{escape(turn.message)}</div>'
            f'<div class="dl-turn dl-model">{escape(turn.answer)}'
            f'<span class="dl-under">{escape(turn.note)}</span></div>'
            for turn in list(self.turns)
        )
        empty = f'<div class="dl-quiet">{escape(self.say("chat.empty"))}</div>'
        return f'<div class="dl-turns">{turns or empty}</div>{self._refused}'
