"""Wait so that an interrupt always gets through; knows not what is waited for.

A signal that comes between the interpreter's last look and the system call that blocks is noticed
only once the call returns. So no wait is longer than a slice; the interpreter looks in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from dashinfer_lab.errors import RequestError

__all__ = ["SLICE_SECONDS", "Deadline", "join", "take", "wait_until"]

SLICE_SECONDS: Final = 0.1
_JOIN_SECONDS: Final = 0.005

T = TypeVar("T")


class Deadline:
    """The time that is left of a wait of so many seconds; None is no limit.

    Raises `RequestError` for what is no number.
    """

    def __init__(self, timeout: float | None) -> None:
        is_number = isinstance(timeout, int | float) and timeout == timeout
        if timeout is not None and not is_number:
            raise RequestError(f"timeout={timeout!r:.80} must be a number of seconds, or None")
        self._end: Final = None if timeout is None else time.monotonic() + timeout

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self._end is not None and time.monotonic() >= self._end

    def slice(self) -> float:
        """Seconds to wait before the interpreter looks for signals again."""
        if self._end is None:
            return SLICE_SECONDS
        return min(max(self._end - time.monotonic(), 0.0), SLICE_SECONDS)


def take(queue: SimpleQueue[T], timeout: float | None = None) -> T:
    """Take the next item; raises `queue.Empty` after `timeout` seconds."""
    deadline = Deadline(timeout)
    while True:
        try:
            return queue.get(timeout=deadline.slice())
        except Empty:
            if deadline.over:
                raise


def wait_until(condition: threading.Condition, reached: Callable[[], bool]) -> None:
    """Wait for a condition, whose lock is held, to make `reached` true."""
    while not reached():
        condition.wait(SLICE_SECONDS)


def join(thread: threading.Thread) -> None:
    """Wait for a thread to end.

    `Thread.join` before Python 3.13, interrupted, takes a running thread for ended.
    """
    while thread.is_alive():
        time.sleep(_JOIN_SECONDS)
