"""Which browser tab is being answered, so that a stop or a closed tab ends that answer alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["Running", "Stop"]


class Stop:
    """The wish to end one piece of work: asked at most once, also before there is what to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancel: Callable[[], object] | None = None
        self._asked = False

    @property
    def asked(self) -> bool:
        """Whether the work is no longer wanted."""
        return self._asked

    def ends(self, cancel: Callable[[], object]) -> None:
        """Call `cancel` when asked, or now where that was before."""
        with self._lock:
            self._cancel = cancel
            asked = self._asked
        if asked:
            cancel()

    def ask(self) -> None:
        """End the work; asking again changes nothing."""
        with self._lock:
            if self._asked:
                return
            self._asked = True
            cancel = self._cancel
        if cancel is not None:
            cancel()


class Running:
    """Work by session; a session is one browser tab."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[str, list[Stop]] = {}

    @contextmanager
    def work(self, session: str) -> Generator[Stop]:
        """Register a piece of work of `session` for as long as the block runs."""
        stop = Stop()
        with self._lock:
            self._stops.setdefault(session, []).append(stop)
        try:
            yield stop
        finally:
            with self._lock:
                remaining = self._stops[session]
                remaining.remove(stop)
                if not remaining:
                    del self._stops[session]

    def stop(self, session: str) -> None:
        """Ask all work of `session` to end; other sessions go on."""
        with self._lock:
            stops = list(self._stops.get(session, ()))
        for stop in stops:
            stop.ask()

    def __len__(self) -> int:
        """Sessions that are being answered."""
        return len(self._stops)
