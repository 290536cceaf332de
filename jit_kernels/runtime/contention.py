"""How many workers to use while other programs want the processors; results do not depend on it.

Workers wait for each other after every operation. Where the system takes a processor away from one
of them, all the others wait for a whole time slice, hundreds of times a step: fewer workers, at
last one, are then faster than all.

    all ──waiting for much of the time──▶ half ──▶ ... ──▶ one
     ▲                                     │
     └─────────── after a while ───────────┘

A while is 0.2 s at first, twice as long with each relapse to 3.2 s, and 12.8 s where the processors
for more are not idle. It goes on while even the fewer wait for theirs: a step of all may then take
half a second, and nothing is seen before its end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar, Final

__all__ = ["Contention"]

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 0.45  # of the time: what half of the workers would lose for sure
# Short waits are not counted, so that beside one busy thread less shows than is lost: two workers
# then do a third of what they do alone, and one does 60 %. Only where threads waited for processors
# themselves, and not for one of them that had more to do.
_MOST_WAITING_DELAYED: Final = 0.2
_MOST_DELAYED: Final = 0.25  # of one thread's time
# Of all workers' time: so long for processors that fewer workers get as much of them. Where several
# others want them the waits for each other are short and many, and all of them go uncounted.
_DELAYED_TOO_LONG: Final = 0.35
_HARDLY_DELAYED: Final = 0.05
_WINDOWS_OF_PAUSES: Final = 3
_WINDOW_SECONDS: Final = 0.15  # a virtual machine's own pauses of 10 ms are no reason
_FIRST_HOLD_SECONDS: Final = 0.2
_LONGEST_HOLD_SECONDS: Final = 3.2
_HOLD_WHILE_TAKEN_SECONDS: Final = 12.8
_FORGIVEN_AFTER: Final = 5  # times the hold
_IDLE_ENOUGH: Final = 0.7  # of the processors that more workers would take
_STILL_DELAYED: Final = 0.15  # of one thread's time


Seconds = Callable[[], float | None]


class Contention:
    """Watches runs and says how many of `num_workers` the next one should use.

    `delays` are the seconds for which all threads so far waited for a processor while they wanted
    to run, `idle` those for which processors that they may use had nothing to do; None where the
    system does not tell. That they are fewer is told once a process, whichever pool meets it first.
    """

    told: ClassVar[bool] = False

    def __init__(
        self,
        num_workers: int,
        delays: Seconds = lambda: None,
        idle: Seconds = lambda: None,
    ) -> None:
        self.num_active = num_workers
        self._all: Final = num_workers
        self._waiting = self._running = self._num_pauses = 0
        self._delays: Final = delays
        self._idle: Final = idle
        self._counts_before: tuple[float | None, float | None] = (None, None)
        self._looked_seconds = 0.0
        self._delayed_before: float | None = None
        self._window_began: float | None = None
        self._hold_seconds = _FIRST_HOLD_SECONDS
        self._changed_seconds = 0.0
        self._restored = False

    def begin(self, now_seconds: float) -> None:
        """Say that a run begins; between two windows there may be hours."""
        if self._window_began is None:
            self._window_began, self._delayed_before = now_seconds, self._delays()

    def observe(self, waiting: int, running: int, now_seconds: float) -> None:
        """Take in a run: its cycles, and those that workers waited for one that did not run."""
        assert self._window_began is not None
        self._waiting += waiting
        self._running += running
        if now_seconds - self._window_began < _WINDOW_SECONDS:
            return
        share, seconds = self._waiting / max(self._running, 1), now_seconds - self._window_began
        self._waiting = self._running = 0
        self._window_began = None
        if self._is_crowded(share, seconds):
            self._reduce(now_seconds)
        elif self.num_active < self._all:
            if now_seconds - self._looked_seconds >= self._hold_seconds:
                self._restore_if_idle(now_seconds)
        elif now_seconds - self._changed_seconds >= _FORGIVEN_AFTER * self._hold_seconds:
            self._hold_seconds, self._restored = _FIRST_HOLD_SECONDS, False

    def _is_crowded(self, share: float, seconds: float) -> bool:
        """Whether a window in which workers waited for that share says that others are at work.

        Where no thread of ours wanted a processor in vain, it was the host that paused one of a
        virtual machine: once is no reason, again and again is.
        """
        delayed = self._delayed()
        if delayed is not None and delayed > _DELAYED_TOO_LONG * self.num_active * seconds:
            return self.num_active > 1
        if share <= _MOST_WAITING:
            self._num_pauses = 0
            return (
                delayed is not None
                and share > _MOST_WAITING_DELAYED
                and delayed > _MOST_DELAYED * seconds
            )
        self._num_pauses += 1
        hardly = delayed is not None and delayed < _HARDLY_DELAYED * seconds
        return not hardly or self._num_pauses >= _WINDOWS_OF_PAUSES

    def _delayed(self) -> float | None:
        """Seconds that threads waited for a processor in the window; None where nobody knows."""
        now, before = self._delays(), self._delayed_before
        return None if now is None or before is None or now < before else now - before

    def _restore_if_idle(self, now_seconds: float) -> None:
        """Use twice the workers, unless processors are taken.

        Whether they would wait for them is tried now and then all the same, if fewer do not.
        """
        wanted = min(2 * self.num_active, self._all)
        elapsed, self._looked_seconds = now_seconds - self._looked_seconds, now_seconds
        before, self._counts_before = self._counts_before, (self._idle(), self._delays())
        idle, delayed = (
            None if now is None or then is None or now < then else (now - then) / elapsed
            for now, then in zip(self._counts_before, before, strict=True)
        )
        taken = idle is not None and idle < _IDLE_ENOUGH * (wanted - self.num_active)
        is_early = now_seconds - self._changed_seconds < _HOLD_WHILE_TAKEN_SECONDS
        if taken and (is_early or delayed is None or delayed > _STILL_DELAYED * self.num_active):
            return
        self.num_active = wanted
        self._changed_seconds = now_seconds
        self._restored = True

    def _reduce(self, now_seconds: float) -> None:
        if self._restored:  # a relapse
            self._hold_seconds = min(2 * self._hold_seconds, _LONGEST_HOLD_SECONDS)
            self._restored = False
        self.num_active = max(1, self.num_active // 2)
        self._changed_seconds = self._looked_seconds = now_seconds
        self._counts_before = self._idle(), self._delays()
        if not Contention.told:
            Contention.told = True
            _log.warning(
                "other programs keep the processors busy: %d of %d threads are used while that "
                "lasts; results do not change, speed does",
                self.num_active,
                self._all,
            )
