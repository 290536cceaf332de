"""A caller's end of a request: its tokens as they come, and the way to stop it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty
from typing import Final

from dashinfer_lab.engine.event_queue import EventQueue
from dashinfer_lab.engine.mailbox import Mailbox
from dashinfer_lab.engine.waiting import Deadline
from dashinfer_lab.errors import (
    DeadlineError,
    NonFiniteError,
    SamplingError,
    TokenizerError,
)
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.outputs import CompletionOutput, FinishReason, TokenEvent
from dashinfer_lab.sampling import Logprob

__all__ = ["RequestHandle"]


class RequestHandle:
    """Iterate for `TokenEvent`s; leaving the loop early, or dropping the handle, cancels.

    Several consumers share the events. The last one has a finish_reason; after one of "error" the
    error is raised. What was received is kept: `output` has the partial answer after an interrupt.
    """

    def __init__(
        self,
        request_id: int,
        choice: int,
        prompt_token_ids: Sequence[int],
        events: EventQueue,
        mailbox: Mailbox,
        token_text: Callable[[int], str] | None,
    ) -> None:
        self.request_id: Final = request_id
        self.choice: Final = choice
        self.prompt_token_ids: Final = list(prompt_token_ids)
        self._events: Final = events
        self._received: Final[list[TokenEvent]] = []
        self._token_text: Final = token_text
        self._num_taken = 0
        self._mailbox: Final = mailbox
        self._reading: Final = threading.Lock()
        self._cancel: Final = weakref.finalize(self, mailbox.cancel, request_id)
        # At exit the engine closes anyway.
        self._cancel.atexit = False

    @property
    def finished(self) -> bool:
        """Whether the last event was received."""
        return bool(self._received) and self._received[-1].finish_reason is not None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None before the last event was received."""
        return self._received[-1].finish_reason if self._received else None

    @property
    def metrics(self) -> RequestMetrics | None:
        """Times and counts; None before the last event was received."""
        return self._received[-1].metrics if self._received else None

    @property
    def prompt_logprobs(self) -> list[dict[int, Logprob] | None] | None:
        """By id, for each token of the prompt, None for the first; None where not asked for."""
        found = next(
            (e.prompt_logprobs for e in self._received if e.prompt_logprobs is not None), None
        )
        if found is None:
            return None
        return [None, *(entry.as_dict(self._token_text) for entry in found)]

    def cancel(self) -> None:
        """Ask the engine to end it, queued or running; it does within a step. Idempotent."""
        if not self.finished:
            self._cancel()

    def get(self, timeout: float | None = None) -> TokenEvent | None:
        """Wait for the next event; None after the last. Raises `TimeoutError`, or its error."""
        left = Deadline(timeout)
        while not (timeout == 0 and self._reading.locked()):
            with self._reading:
                if self.finished:
                    return self._raise_error()
                try:
                    return self._receive(left.slice())
                except Empty:
                    if left.over:
                        break
        raise TimeoutError(f"request {self.request_id}: no token in {timeout} s")

    def _receive(self, timeout: float) -> TokenEvent:
        """Take an event that comes within a time, or raise `Empty`."""
        if timeout > 0 and self._events.empty():
            self._mailbox.require_other_thread()
        try:
            event = self._events.take(timeout)
        except Empty:
            # An interrupt may have come between taking the last event and keeping it.
            if self._events.last is None or not self._events.empty():
                raise
            event = self._events.last
        self._received.append(event)
        if event.finish_reason is not None:
            self._cancel.detach()
        return event

    def _raise_error(self) -> None:
        error = self._received[-1].error
        if error is not None:
            raise error

    @property
    def ended(self) -> bool:
        """Whether the last event has come, received or not."""
        return self._events.last is not None

    def listen(self, listener: Callable[[], None], *, end_only: bool = False) -> None:
        """Call back, on the engine's thread, for each event that comes; at once if one is there.

        end_only: for the last one alone, since nobody reads before the end. The listener neither
        waits nor raises.
        """
        self._events.listen(listener, end_only=end_only)

    def __iter__(self) -> Iterator[TokenEvent]:
        try:
            while (event := self.get()) is not None:
                yield event
        finally:
            self.cancel()

    def want_whole(self) -> None:
        """Say that nobody reads before the end: tokens may then come many at a time."""
        self._events.whole = True

    def completion(self, timeout: float | None = None) -> CompletionOutput:
        """Wait for the end and return the whole. An interrupt cancels; a timeout does not.

        An error of this request alone is finish_reason "error"; one of the engine is raised.
        """
        try:
            ended = self.finished or self._events.last is not None
            if not ended:
                self._mailbox.require_other_thread()
                ended = self._events.wait_for_end(timeout)
        except BaseException:
            self.cancel()
            raise
        if not ended:
            raise TimeoutError(f"request {self.request_id}: not finished in {timeout} s")
        while not self.finished:
            self.get()
        error = self._received[-1].error
        of_this_request = (DeadlineError, NonFiniteError, SamplingError, TokenizerError)
        if error is not None and not isinstance(error, of_this_request):
            raise error
        return self.output

    @property
    def num_events(self) -> int:
        """Events that have come so far, one a token and perhaps one more for the end."""
        with suppress(TimeoutError):  # another consumer is reading
            while not self.finished and not self._events.empty():
                self.get(0)
        return len(self._received)

    @property
    def output(self) -> CompletionOutput:
        """What has come so far, without waiting."""
        return self._output_of(self._received[: self.num_events])

    def take_output(self) -> CompletionOutput:
        """What has come since it was taken last, without waiting."""
        begin, self._num_taken = self._num_taken, self.num_events
        return self._output_of(self._received[begin : self._num_taken])

    def _output_of(self, events: Sequence[TokenEvent]) -> CompletionOutput:
        tokens = [event for event in events if event.token_id is not None]
        found = [event.logprobs for event in tokens if event.logprobs is not None]
        last = events[-1] if events else None
        return CompletionOutput(
            index=self.choice,
            text="".join(event.text for event in events),
            token_ids=[event.token_id for event in tokens if event.token_id is not None],
            logprobs=[entry.as_dict(self._token_text) for entry in found] or None,
            cumulative_logprob=sum(entry.logprob for entry in found) if found else None,
            finish_reason=last.finish_reason if last else None,
            stop_reason=last.stop_reason if last else None,
            error=last.error if last else None,
        )

    def __repr__(self) -> str:
        state = self.finish_reason or "open"
        return f"<RequestHandle {self.request_id}: {len(self._received)} tokens, {state}>"
