"""Ctrl-C as a wish to stop one thing, instead of an exception anywhere; knows no command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

__all__ = ["Interruption"]


class Interruption:
    """Within the block the first Ctrl-C calls what `stops` was given; a second raises as usual.

    No exception means that what was written and what was recorded cannot come apart. Outside the
    main thread, and where Ctrl-C is ignored, nothing changes.
    """

    def __init__(self) -> None:
        self.asked = False
        self._stop: Callable[[], object] | None = None
        self._usual = signal.getsignal(signal.SIGINT)
        self._is_possible = (
            threading.current_thread() is threading.main_thread()
            and self._usual not in (None, signal.SIG_IGN)
        )

    def stops(self, stop: Callable[[], object]) -> None:
        """Call `stop` at Ctrl-C, or now where it came already; it must be safe anywhere."""
        self._stop = stop
        if self.asked:
            stop()

    def __enter__(self) -> Interruption:
        if self._is_possible:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        self.asked = True
        if self._stop is not None:
            self._stop()

    def _restore(self) -> None:
        if self._is_possible:
            signal.signal(signal.SIGINT, self._usual)
