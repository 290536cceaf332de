"""Forks work and kills it at random moments; for programs that tests run in a process of their own.

A fork begins at once, so that a moment lies within the work and not within Python's start.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from time import perf_counter, sleep

__all__ = ["kill_at_random"]


def kill_at_random(work: Callable[[str], object], moments: int, seed: int) -> list[int]:
    """Run `work` in `moments` forks, given the names "0", "1", ...; return how each one ended.

    Three undisturbed runs, "first" to "third", tell how long it takes; the last is the measure.
    """
    seconds = [_timed(work, name) for name in ("first", "second", "third")][-1]
    draw = random.Random(seed)
    return [_killed(work, str(moment), draw.uniform(0, seconds)) for moment in range(moments)]


def _timed(work: Callable[[str], object], name: str) -> float:
    begin = perf_counter()
    assert _ended(_forked(work, name)) == 0
    return perf_counter() - begin


def _killed(work: Callable[[str], object], name: str, seconds: float) -> int:
    child = _forked(work, name)
    sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return _ended(child)


def _forked(work: Callable[[str], object], name: str) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(name)
        code = 0
    finally:
        os._exit(code)


def _ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
