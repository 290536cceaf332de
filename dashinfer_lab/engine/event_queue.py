"""A request's events on their way to its caller: one by one, or all at the end.

Who wants the whole waits for the end alone. Waking a caller for every token takes a processor from
the workers just when the next step begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from dashinfer_lab.engine.waiting import Deadline, take
from dashinfer_lab.outputs import TokenEvent

__all__ = ["EventQueue"]


class EventQueue:
    """Written by the engine's thread, read by one other at a time.

    last: the event of the end, once it was put.
    """

    def __init__(self) -> None:
        self._events: Final[SimpleQueue[TokenEvent]] = SimpleQueue()
        self._ended: Final = threading.Event()
        self._listener: Callable[[], None] | None = None
        self._hears_end_only = False
        self.last: TokenEvent | None = None
        self.whole = False
        """Whether the reader waits for the end alone."""

    def put(self, event: TokenEvent) -> None:
        """Add an event; the last one has a finish_reason."""
        self._events.put(event)
        if event.finish_reason is not None:
            self.last = event
            self._ended.set()
        if self._listener is not None and not (self._hears_end_only and self.last is None):
            self._listener()

    def listen(self, listener: Callable[[], None], *, end_only: bool = False) -> None:
        """Call back, on the thread that puts it, for each event; at once if one is there.

        end_only: for the last one alone. The listener neither waits nor raises.
        """
        self.whole = self._hears_end_only = end_only
        self._listener = listener
        if self.last is not None or not (end_only or self._events.empty()):
            listener()

    def take(self, timeout: float | None = None) -> TokenEvent:
        """Wait for the next event; raises `queue.Empty` after `timeout` seconds."""
        self.whole = False
        return take(self._events, timeout)

    def empty(self) -> bool:
        """Whether no event is there now."""
        return self._events.empty()

    def wait_for_end(self, timeout: float | None = None) -> bool:
        """Wait until the last event is there; False after `timeout` seconds."""
        self.whole = True
        deadline = Deadline(timeout)
        while not self._ended.is_set():
            if deadline.over:
                return False
            self._ended.wait(deadline.slice())
        return True
