"""A request's events on their way to its caller: one by one, or all at the end.

Who wants the whole waits for the end alone. Waking a caller for every token takes a processor from
the workers just when the next step begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from dashinfer_lab.engine.waiting import SLICE_SECONDS, take
from dashinfer_lab.outputs import TokenEvent

__all__ = ["EventQueue"]


class EventQueue:
    """Written by the engine's thread, read by one other."""

    def __init__(self) -> None:
        self._events: Final[SimpleQueue[TokenEvent]] = SimpleQueue()
        self._ended: Final = threading.Event()
        self._listener: Callable[[], None] | None = None

    def put(self, event: TokenEvent) -> None:
        """Add an event; the last one has a finish_reason."""
        self._events.put(event)
        if event.finish_reason is not None:
            self._ended.set()
        if self._listener is not None:
            self._listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call back, on the thread that puts it, for each event; at once if one is there.

        The listener neither waits nor raises.
        """
        self._listener = listener
        if not self._events.empty():
            listener()

    def take(self, timeout: float | None = None) -> TokenEvent:
        """Wait for the next event; raises `queue.Empty` after `timeout` seconds."""
        return take(self._events, timeout)

    def empty(self) -> bool:
        """Whether no event is there now."""
        return self._events.empty()

    def wait_for_end(self, timeout: float | None = None) -> bool:
        """Wait until the last event is there; False after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended.is_set():
            left = SLICE_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            self._ended.wait(min(left, SLICE_SECONDS))
        return True
