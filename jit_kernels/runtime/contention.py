"""How many workers to use while other programs want the processors; results do not depend on it.

Workers wait for each other after every operation. Where the system takes a processor away from one
of them, all the others wait for a whole time slice, hundreds of times a step: fewer workers, at
last one, are then faster than all.

    all ──waiting for a quarter of the time──▶ half ──▶ ... ──▶ one
     ▲                                          │
     └────────────── after a while ─────────────┘

A while is 0.2 s at first, and twice as long with each relapse.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final

__all__ = ["Contention"]

_log = logging.getLogger(__name__)
# Of the time. Short waits are not counted: beside one busy thread two workers of two then do a
# third of what they do alone, one does 60 %.
_MOST_WAITING: Final = 0.25
_WINDOW_SECONDS: Final = 0.15  # a virtual machine's own pauses of 10 ms are no reason
_FIRST_HOLD_SECONDS: Final = 0.2
_LONGEST_HOLD_SECONDS: Final = 3.2
_FORGIVEN_AFTER: Final = 5  # times the hold


class Contention:
    """Watches runs and says how many of `num_workers` the next one should use.

    That they are fewer is told once a process, whichever pool meets it first.
    """

    told: ClassVar[bool] = False

    def __init__(self, num_workers: int) -> None:
        self.num_active = num_workers
        self._all: Final = num_workers
        self._waiting = self._running = 0
        self._window_began: float | None = None
        self._hold_seconds = _FIRST_HOLD_SECONDS
        self._changed_seconds = 0.0
        self._restored = False

    def observe(self, waiting: int, running: int, now_seconds: float) -> None:
        """Take in a run: its cycles, and those that workers waited for one that did not run."""
        if self._window_began is None:
            self._window_began = now_seconds
        self._waiting += waiting
        self._running += running
        if now_seconds - self._window_began < _WINDOW_SECONDS:
            return
        share = self._waiting / max(self._running, 1)
        self._waiting = self._running = 0
        self._window_began = None
        if share > _MOST_WAITING:
            self._reduce(now_seconds)
        elif self.num_active < self._all:
            if now_seconds - self._changed_seconds >= self._hold_seconds:
                self._restore(now_seconds)
        elif now_seconds - self._changed_seconds >= _FORGIVEN_AFTER * self._hold_seconds:
            self._hold_seconds, self._restored = _FIRST_HOLD_SECONDS, False

    def _restore(self, now_seconds: float) -> None:
        self.num_active = min(2 * self.num_active, self._all)
        self._changed_seconds = now_seconds
        self._restored = True

    def _reduce(self, now_seconds: float) -> None:
        if self._restored:  # a relapse
            self._hold_seconds = min(2 * self._hold_seconds, _LONGEST_HOLD_SECONDS)
            self._restored = False
        self.num_active = max(1, self.num_active // 2)
        self._changed_seconds = now_seconds
        if not Contention.told:
            Contention.told = True
            _log.warning(
                "other programs keep the processors busy: %d of %d threads are used while that "
                "lasts; results do not change, speed does",
                self.num_active,
                self._all,
            )
