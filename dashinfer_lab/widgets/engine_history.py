"""What an engine did lately, second by second; written by its thread, read by another."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final

from dashinfer_lab.events import StepEvent

__all__ = ["EngineHistory", "Rate"]

SLICE_SECONDS: Final = 0.25
_NUM_SLICES: Final = 120


@dataclass(slots=True)
class Rate:
    """A slice of time: tokens computed in it, and the largest batch."""

    index: int
    num_prefill_tokens: float = 0.0
    num_decode_tokens: float = 0.0
    num_requests: int = 0


class EngineHistory:
    """The latest half minute. Taking in a step costs about a microsecond."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._slices: Final[deque[Rate]] = deque(maxlen=_NUM_SLICES + 1)
        self.last: StepEvent | None = None

    def add(self, event: StepEvent) -> None:
        """Take in a step; its tokens are shared out over the slices it took."""
        begin = event.begin_seconds / SLICE_SECONDS
        end = max((event.begin_seconds + event.total_seconds) / SLICE_SECONDS, begin + 1e-9)
        with self._lock:
            for index in range(max(int(begin), int(end) - _NUM_SLICES), int(end) + 1):
                share = (min(end, index + 1) - max(begin, index)) / (end - begin)
                now = self._slice(index)
                now.num_prefill_tokens += share * event.num_prefill_tokens
                now.num_decode_tokens += share * event.num_decode_tokens
                now.num_requests = max(now.num_requests, event.num_requests)
            self.last = event

    def _slice(self, index: int) -> Rate:
        """The slice of this index; steps follow one another, so it is the last one or a new one."""
        if not self._slices or self._slices[-1].index < index:
            self._slices.append(Rate(index))
        return self._slices[-1]

    def slices(self, now_seconds: float) -> list[Rate]:
        """Every slice up to the one before now, those without a step included."""
        end = int(now_seconds / SLICE_SECONDS)
        with self._lock:
            known = {each.index: each for each in self._slices}
        begin = max(end - _NUM_SLICES, min(known, default=end))
        return [known.get(index, Rate(index)) for index in range(begin, end)]

    def tokens_per_second(self, now_seconds: float) -> float:
        """Decoded tokens a second over the last second."""
        latest = self.slices(now_seconds)[-round(1 / SLICE_SECONDS) :]
        seconds = len(latest) * SLICE_SECONDS
        return sum(each.num_decode_tokens for each in latest) / seconds if latest else 0.0
