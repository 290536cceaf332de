"""How fast this machine reads memory: as a benchmark kept it, else measured in a moment."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["read_bandwidth"]

_FREE_BYTES: Final = 1 << 30  # a quarter of it is read
_SECONDS: Final = 0.2


def read_bandwidth(threads: int, free_bytes: int) -> float | None:
    """GB a second; None where too little memory is free to measure it.

    What is measured here is not kept: it was taken beside whatever else runs.
    """
    from dashinfer_lab.engine.auto_weights import kept_bandwidth
    from jit_kernels.isa import detect

    kept = kept_bandwidth(detect().name, threads)
    return _measured(threads) if kept is None and free_bytes > _FREE_BYTES else kept


@lru_cache(maxsize=8)
def _measured(threads: int) -> float:
    from jit_kernels.bench import RoofMeter

    return RoofMeter(threads).bandwidth(_SECONDS)[1]
