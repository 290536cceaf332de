"""How many workers to use while other programs want the processors; results do not depend on it.

Workers wait for each other after every operation. Where the system takes a processor away from one
of them, all the others wait for a whole time slice, hundreds of times a step: fewer workers, at
last one, are then faster than all.

    all ──stalled twice──▶ half ──stalled──▶ ... ──▶ one
     ▲                        │
     └──── quiet for a while ─┘    a while: 0.2 s at first, twice as long after each relapse
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["Contention"]

_log = logging.getLogger(__name__)
_FIRST_HOLD_SECONDS: Final = 0.2
_LONGEST_HOLD_SECONDS: Final = 6.4
_FORGIVEN_AFTER: Final = 5  # times the hold


class Contention:
    """Watches runs and says how many of `num_workers` the next one should use."""

    def __init__(self, num_workers: int) -> None:
        self.num_active = num_workers
        self._all: Final = num_workers
        self._hold_seconds = _FIRST_HOLD_SECONDS
        self._changed_seconds = 0.0
        self._strikes = 0
        self._restored = False
        self._told = False

    def observe(self, stalled: bool, now_seconds: float) -> None:
        """Take in whether a worker waited for one that did not run; the clock is monotonic."""
        if stalled:
            self._strikes += 1
            if self._strikes >= 2:
                self._reduce(now_seconds)
        elif self.num_active < self._all:
            if now_seconds - self._changed_seconds >= self._hold_seconds:
                self.num_active = min(2 * self.num_active, self._all)
                self._changed_seconds = now_seconds
                self._strikes = 1
                self._restored = True
        elif now_seconds - self._changed_seconds >= _FORGIVEN_AFTER * self._hold_seconds:
            self._hold_seconds, self._strikes = _FIRST_HOLD_SECONDS, 0
            self._restored = False

    def _reduce(self, now_seconds: float) -> None:
        if self._restored:  # a relapse
            self._hold_seconds = min(2 * self._hold_seconds, _LONGEST_HOLD_SECONDS)
            self._restored = False
        self.num_active = max(1, self.num_active // 2)
        self._changed_seconds = now_seconds
        self._strikes = 1
        if not self._told:
            self._told = True
            _log.warning(
                "other programs keep the processors busy: %d of %d threads are used while that "
                "lasts; results do not change, speed does",
                self.num_active,
                self._all,
            )
