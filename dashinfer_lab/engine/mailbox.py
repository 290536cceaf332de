"""Carries requests and cancellations to the engine thread; knows nothing of steps.

A thread does not survive a fork, so in a forked child nobody would collect: posting is refused.

The only lock of the engine. It is re-entrant, since a garbage collection inside a locked section
may run a finaliser that cancels. Cancellations are never refused; submissions are bounded.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dashinfer_lab.engine.request import Request
from dashinfer_lab.engine.waiting import wait_until
from dashinfer_lab.errors import (
    DashInferLabError,
    EngineBusyError,
    EngineError,
    RequestError,
)

__all__ = ["Mailbox"]


class Mailbox:
    """Many threads post, one thread collects. `backlog` tells how many requests wait beyond it.

    hurry: asks whoever is to collect to come soon.
    """

    def __init__(
        self, max_queued: int, backlog: Callable[[], int], hurry: Callable[[], None]
    ) -> None:
        self._hurry: Final = hurry
        self._max_queued: Final = max_queued
        self._backlog: Final = backlog
        self._process: Final = os.getpid()
        self._lock: Final = threading.RLock()
        self._news: Final = threading.Condition(self._lock)
        self._room: Final = threading.Condition(self._lock)
        self._submitted: Final[deque[Request]] = deque()
        self._cancelled: Final[deque[int]] = deque()
        self._closed_by: Callable[[], DashInferLabError] | None = None
        self._collector: threading.Thread | None = None
        self.num_refused = 0

    @property
    def num_submitted(self) -> int:
        """Requests posted but not collected."""
        return len(self._submitted)

    @property
    def closed_by(self) -> Callable[[], DashInferLabError] | None:
        """What makes the error that posting raises; None while open."""
        return self._closed_by

    def submit(self, requests: Sequence[Request], *, block: bool) -> None:
        """Post requests, all or none. A full queue refuses, or lets the caller wait."""
        self._require_collector()
        with self._lock:
            if block and len(requests) <= self._max_queued and self._is_full(len(requests)):
                self.require_other_thread()
                wait_until(self._room, lambda: not self._is_full(len(requests)))
            if self._is_full(len(requests)):
                self.num_refused += len(requests)
                raise EngineBusyError(
                    f"no room for {len(requests)} more: {self._num_queued()} requests wait and "
                    f"at most {self._max_queued} may; try later, or raise max_queued"
                )
            if self._closed_by is not None:
                raise self._closed_by()
            self._submitted.extend(requests)
            self._tell()

    def require_possible(self, count: int) -> None:
        """Refuse, before they are made, requests that not even an empty queue could take."""
        if count > self._max_queued:
            raise RequestError(
                f"{count} requests at once exceed the {self._max_queued} that may wait: ask for "
                "fewer, or raise max_queued"
            )

    def cancel(self, request_id: int) -> None:
        """Post a cancellation; safe anywhere, also in a finaliser, and nothing in a fork."""
        if self._is_fork:
            return
        with self._lock:
            self._cancelled.append(request_id)
            self._tell()

    def close(self, error: Callable[[], DashInferLabError]) -> None:
        """Refuse whatever is posted from now on, with this error; the first closing counts.

        Nothing in a fork, where the thread that may hold the lock is not.
        """
        if self._is_fork:
            return
        with self._lock:
            if self._closed_by is None:
                self._closed_by = error
            self._tell()
            self._room.notify_all()

    def has_news(self, within_seconds: float) -> bool:
        """Whether something was posted, or the mailbox closed, before the time was over."""
        with self._lock:
            self._room.notify_all()  # what was waiting may have ended
            return self._news.wait_for(self._has_news, within_seconds)

    def _has_news(self) -> bool:
        return bool(self._closed_by is not None or self._submitted or self._cancelled)

    def collect(
        self, add: Callable[[Request], None], cancel: Callable[[int], None], *, idle: bool
    ) -> bool:
        """Hand over what was posted, waiting for it when idle; False once closed."""
        self._collector = threading.current_thread()
        with self._lock:
            self._room.notify_all()
            while idle and not self._has_news():
                self._news.wait()
            while self._submitted:
                add(self._submitted[0])  # stays here until it is taken: none gets lost
                self._submitted.popleft()
            while self._cancelled:
                cancel(self._cancelled.popleft())
            return self._closed_by is None

    def require_other_thread(self) -> None:
        """Raise `EngineError` on the thread that collects, which would wait for itself."""
        if threading.current_thread() is self._collector:
            raise EngineError(
                "this is the engine's own thread, on which subscribers and logits processors run: "
                "it would wait for itself; ask from another thread"
            )

    def _tell(self) -> None:
        self._news.notify()
        self._hurry()

    def _require_collector(self) -> None:
        if self._is_fork:
            raise EngineError(
                f"the engine's thread lives in process {self._process}, not in its fork "
                f"{os.getpid()}: make the engine after forking, or start processes by spawn"
            )

    @property
    def _is_fork(self) -> bool:
        return os.getpid() != self._process

    def _num_queued(self) -> int:
        return len(self._submitted) + self._backlog()

    def _is_full(self, count: int) -> bool:
        return self._closed_by is None and self._num_queued() + count > self._max_queued
