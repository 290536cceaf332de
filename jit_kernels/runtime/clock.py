"""How fast the processor's cycle counter runs, measured once against the system's clock."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from jit_kernels.compiler import Compiler
from jit_kernels.runtime.image import native_addresses

__all__ = ["cycles_per_second"]

_INTERVAL_SECONDS = 0.02
_TRIES = 16


class _Reading(NamedTuple):
    """The cycle counter, and the clock just before; `doubt` bounds the time between the two."""

    doubt: float
    seconds: float
    cycles: int


@lru_cache(maxsize=8)
def cycles_per_second(compiler: Compiler) -> float:
    """Rate of the counter that profiles are made with; takes 20 ms the first time."""
    read = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(native_addresses(compiler)["read_cycles"])
    first = _reading(read)
    time.sleep(_INTERVAL_SECONDS)
    last = _reading(read)
    return (last.cycles - first.cycles) / (last.seconds - first.seconds)


def _reading(read: Callable[[Any], None]) -> _Reading:
    """The least doubtful of several readings: this thread may be interrupted in any of them."""
    cell = ctypes.c_int64()
    readings: list[_Reading] = []
    for _ in range(_TRIES):
        before = time.perf_counter()
        read(ctypes.byref(cell))
        readings.append(_Reading(time.perf_counter() - before, before, cell.value))
    return min(readings)
