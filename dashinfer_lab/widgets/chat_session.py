"""A conversation with a loaded model, one answer at a time; knows no widget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashinfer_lab.errors import ConfigError, DashInferLabError
from dashinfer_lab.widgets.chat_notes import final_note, live_note
from dashinfer_lab.widgets.pulse import SECONDS_BETWEEN

if TYPE_CHECKING:
    from dashinfer_lab.engine import RequestHandle
    from dashinfer_lab.llm import LLM, Message
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["ChatSession", "Turn"]


@dataclass(slots=True)
class Turn:
    """A message, its answer so far, and what stands under it: figures, or why there is none."""

    message: str
    answer: str = ""
    note: str = ""
    error: DashInferLabError | None = None


class ChatSession:
    """Turns in order. `changed` is called after each change, at most 20 times a second."""

    def __init__(
        self, llm: LLM, system: str, say: Callable[..., str], changed: Callable[[], None]
    ) -> None:
        self.turns: Final[list[Turn]] = []
        self.system = system
        self._llm: Final = llm
        self._say: Final = say
        self.changed = changed
        self._answering: Final = threading.Lock()
        self._handle: RequestHandle | None = None
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether an answer is on its way."""
        return self._answering.locked()

    def answer(self, message: str, params: SamplingParams) -> Turn:
        """Answer and return the turn; an interrupt keeps what came, cancels, and is raised.

        An error of the request becomes the turn's `error` and note. Raises `ConfigError` while
        another answer is on its way.
        """
        if not self._answering.acquire(blocking=False):
            raise ConfigError("an answer is on its way: stop it, or wait for it")
        turn = Turn(message, note=self._say("chat.thinking"))
        self._stopped = False
        try:
            self.turns.append(turn)
            self.changed()
            self._handle = self._llm.submit(self._for_model(), params)
            self._follow(turn, self._handle)
        except DashInferLabError as error:
            turn.note, turn.error = self._say("chat.failed", message=error), error
        except BaseException:
            turn.note = self._say("chat.stopped").rstrip(" ·")
            raise
        finally:
            if self._handle is not None:
                self._handle.cancel()
            self._handle = None
            self._answering.release()
            self.changed()
        return turn

    def stop(self) -> None:
        """End the answer that is on its way, in the engine; what came is kept."""
        self._stopped = True
        handle = self._handle
        if handle is not None:
            handle.cancel()

    def clear(self) -> None:
        """Forget every turn, and stop."""
        self.stop()
        self.turns.clear()
        self.changed()

    def _for_model(self) -> list[Message]:
        """What the chat template lays out; a turn without an answer is left out."""
        messages: list[Message] = []
        if self.system.strip():
            messages.append({"role": "system", "content": self.system})
        for turn in self.turns[:-1]:
            if turn.answer:
                messages.append({"role": "user", "content": turn.message})
                messages.append({"role": "assistant", "content": turn.answer})
        return [*messages, {"role": "user", "content": self.turns[-1].message}]

    def _follow(self, turn: Turn, handle: RequestHandle) -> None:
        if self._stopped:  # before the engine had it
            handle.cancel()
        begin, first, shown = time.monotonic(), None, 0
        while not handle.finished:
            time.sleep(SECONDS_BETWEEN)
            output, now = handle.output, time.monotonic()
            count = len(output.token_ids)
            if count > shown and not handle.finished:
                first = now if first is None else first
                turn.answer, shown = output.text, count
                turn.note = live_note(count, now - begin, now - first, self._say)
                self.changed()
        turn.answer, turn.note = handle.output.text, final_note(handle, self._say)
        if handle.output.error is not None:
            raise handle.output.error
