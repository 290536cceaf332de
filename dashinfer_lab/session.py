"""A conversation that goes on: what was said is kept, and so are its keys and values.

    ready ──send, stream──▶ answering ──end of the answer, stop, an abandoned loop──▶ ready
      └──────────────────────── end ─────────────────────────▶ ended

The pages of a turn stay in the prefix cache, where the next turn finds them, as long as nobody
needs the room. Knows messages and handles; knows no tokens, model or engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dashinfer_lab.engine import RequestHandle
from dashinfer_lab.errors import RequestError
from dashinfer_lab.outputs import CompletionOutput
from dashinfer_lab.prompts import Message, require_messages
from dashinfer_lab.sampling import SamplingParams

__all__ = ["Session"]

Submit = Callable[[Sequence[Message], "SamplingParams | None"], RequestHandle]


class Session:
    """Turns of one conversation, one at a time; a context manager.

    submit: begins the answer to messages.  messages: what was said before.

    `messages` holds exactly what was emitted: an answer that was stopped is kept as far as it came.
    A turn that raised, or of which nothing was emitted, leaves no trace. Any thread may stop.
    """

    def __init__(self, submit: Submit, messages: Sequence[Message] = ()) -> None:
        require_messages(messages)
        self._submit: Final = submit
        self._messages: list[Message] = [dict(message) for message in messages]
        self._lock: Final = threading.Lock()
        self._handle: RequestHandle | None = None
        self._answering = False
        self._stop_wanted = False
        self._ended = False

    @property
    def messages(self) -> list[Message]:
        """What was said so far; a copy."""
        return [dict(message) for message in self._messages]

    @property
    def answering(self) -> bool:
        """Whether a turn is running."""
        return self._answering

    @property
    def ended(self) -> bool:
        """Whether nothing more can be said."""
        return self._ended

    def send(self, content: str, sampling_params: SamplingParams | None = None) -> CompletionOutput:
        """Say something and wait for the answer. An interrupt cancels, and leaves no trace.

        Raises `RequestError` while another turn runs, after the end, and where the conversation
        has outgrown the context; the error of the answer where it has one.
        """
        handle = self._begin(content, sampling_params)
        said: str | None = None
        try:
            output = handle.completion()
            if output.error is not None:
                raise output.error
            said = output.text
        finally:
            self._finish(content, said)
        return output

    def stream(self, content: str, sampling_params: SamplingParams | None = None) -> Iterator[str]:
        """Say something and yield the answer as it comes; leaving the loop stops it.

        The turn begins and ends with the loop. Raises as `send` does.
        """
        handle = self._begin(content, sampling_params)
        given: list[str] = []
        failed = True
        try:
            for event in handle:
                if event.text:
                    given.append(event.text)
                    yield event.text
                if event.error is not None:
                    raise event.error
            failed = False
        except GeneratorExit:
            failed = False
            raise
        finally:
            handle.cancel()
            self._finish(content, None if failed else "".join(given))

    def stop(self) -> None:
        """End the answer that is being given, if there is one; what came of it is kept."""
        with self._lock:
            self._stop_wanted = self._answering
            handle = self._handle
        if handle is not None:
            handle.cancel()

    def end(self) -> None:
        """Stop, and say no more. Idempotent; the messages stay readable."""
        self._ended = True
        self.stop()

    def fork(self) -> Session:
        """Another session that begins with what was said so far, and shares its pages."""
        self._require_open()
        return Session(self._submit, self._messages)

    def _begin(self, content: str, params: SamplingParams | None) -> RequestHandle:
        with self._lock:
            self._require_open()
            if self._answering:
                raise RequestError("the session is answering: stop it, or wait for the end")
            self._answering, self._stop_wanted = True, False
        try:
            handle = self._submit([*self._messages, _said("user", content)], params)
        except BaseException:
            self._answering = False
            raise
        with self._lock:
            self._handle = handle
            stop_wanted = self._stop_wanted
        if stop_wanted:
            handle.cancel()
        return handle

    def _finish(self, content: str, answer: str | None) -> None:
        with self._lock:
            if answer:
                self._messages += [_said("user", content), _said("assistant", answer)]
            self._handle = None
            self._answering = False

    def _require_open(self) -> None:
        if self._ended:
            raise RequestError("the session has ended: begin another one")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        state = "ended" if self._ended else "answering" if self._answering else "ready"
        return f"<Session {state}: {len(self._messages)} messages>"


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
