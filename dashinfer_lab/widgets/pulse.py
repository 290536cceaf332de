"""Draws again when something is new, but never more than 20 times a second; knows not what.

One thread, and only while something is going on: waiting costs nothing, and who reports what is new
sets a flag. So an engine's thread is never kept from its next step by a display.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["SECONDS_BETWEEN", "Pulse"]

SECONDS_BETWEEN: Final = 0.05


class Pulse:
    """Calls `draw` soon after `beat`, on a thread of its own, until nothing came for a while.

    linger_seconds: how long it goes on drawing after the last beat, for what changes by itself.
    """

    def __init__(self, draw: Callable[[], None], linger_seconds: float = 0.0) -> None:
        self._draw: Final = draw
        self._linger: Final = linger_seconds
        self._lock: Final = threading.Lock()
        self._ended: Final = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_beat = 0.0
        self._new = False

    @property
    def running(self) -> bool:
        """Whether its thread is there."""
        return self._thread is not None

    def beat(self) -> None:
        """Say that something is new; any thread may, as often as it likes."""
        with self._lock:
            self._last_beat, self._new = time.monotonic(), True
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="dl-pulse", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Draw no more, and wait for a drawing that has begun."""
        with self._lock:
            self._ended.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        try:
            while not self._ended.wait(SECONDS_BETWEEN) and self._goes_on():
                self._draw()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _goes_on(self) -> bool:
        """Whether to draw; when not, no later `beat` takes this thread for a living one."""
        with self._lock:
            lingers = time.monotonic() - self._last_beat < self._linger
            goes_on, self._new = self._new or lingers, False
            if not goes_on:
                self._thread = None
            return goes_on
