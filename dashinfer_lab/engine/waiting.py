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

__all__ = ["SLICE_SECONDS", "join", "take", "wait_until"]

SLICE_SECONDS: Final = 0.1

T = TypeVar("T")


def take(queue: SimpleQueue[T], timeout: float | None = None) -> T:
    """Take the next item; raises `queue.Empty` after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SLICE_SECONDS if deadline is None else deadline - time.monotonic()
        try:
            return queue.get(timeout=min(max(left, 0.0), SLICE_SECONDS))
        except Empty:
            if left <= SLICE_SECONDS and deadline is not None:
                raise


def wait_until(condition: threading.Condition, reached: Callable[[], bool]) -> None:
    """Wait for a condition, whose lock is held, to make `reached` true."""
    while not reached():
        condition.wait(SLICE_SECONDS)


def join(thread: threading.Thread) -> None:
    """Wait for a thread to end."""
    while thread.is_alive():
        thread.join(SLICE_SECONDS)
