"""Record exactly one prefill, or so many decode steps of a full batch, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from dashinfer_lab.numbers import require_count
from dashinfer_lab.profiling.steps import ChunkSpan

__all__ = ["Capture", "CaptureState", "DecodeCapture", "PrefillCapture"]

Chunks = Sequence[ChunkSpan]


class CaptureState(ABC):
    """How far one capture is. Asked before each step, told after those it wanted."""

    complete: bool = False

    @abstractmethod
    def wants(self, chunks: Chunks) -> bool:
        """Whether the step that is about to run belongs to the capture."""

    @abstractmethod
    def take(self, chunks: Chunks) -> None:
        """A wanted step was recorded."""

    @abstractmethod
    def missing(self) -> str:
        """What did not come so far."""


class Capture(ABC):
    """What to record; `Capture.prefill` and `Capture.decode` make one."""

    @staticmethod
    def prefill(request: int = 1) -> Capture:
        """All prefill steps of the `request`-th request that begins, counted from 1."""
        return PrefillCapture(require_count("request", request))

    @staticmethod
    def decode(steps: int, batch: int = 1) -> Capture:
        """`steps` steps that only decode, of at least `batch` requests each."""
        return DecodeCapture(require_count("steps", steps), require_count("batch", batch))

    @abstractmethod
    def begin(self) -> CaptureState:
        """A state that has seen nothing."""


@dataclass(frozen=True, slots=True)
class PrefillCapture(Capture):
    """One prefill: the `request`-th that begins."""

    request: int

    def begin(self) -> CaptureState:
        """A state that has seen nothing."""
        return _PrefillState(self.request)


class _PrefillState(CaptureState):
    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._begun: list[int] = []

    def wants(self, chunks: Chunks) -> bool:
        for chunk in chunks:
            if chunk.begins and chunk.request_id not in self._begun[: self._wanted]:
                self._begun.append(chunk.request_id)
        return not self.complete and self._mine(chunks) is not None

    def take(self, chunks: Chunks) -> None:
        mine = self._mine(chunks)
        self.complete = mine is not None and mine.reaches_end

    def missing(self) -> str:
        seen = min(len(self._begun), self._wanted)
        if seen < self._wanted:
            return f"request {self._wanted} did not begin, only {seen} did"
        return f"the prefill of request {self._wanted} did not end"

    def _mine(self, chunks: Chunks) -> ChunkSpan | None:
        if len(self._begun) < self._wanted:
            return None
        wanted = self._begun[self._wanted - 1]
        found = (c for c in chunks if c.request_id == wanted and not c.decoding)
        return next(found, None)


@dataclass(frozen=True, slots=True)
class DecodeCapture(Capture):
    """`steps` steps that only decode, of at least `batch` requests."""

    steps: int
    batch: int

    def begin(self) -> CaptureState:
        """A state that has seen nothing."""
        return _DecodeState(self)


class _DecodeState(CaptureState):
    def __init__(self, wanted: DecodeCapture) -> None:
        self._wanted = wanted
        self._taken = 0
        self._largest = 0

    def wants(self, chunks: Chunks) -> bool:
        if self.complete or not all(chunk.decoding for chunk in chunks):
            return False
        self._largest = max(self._largest, len(chunks))
        return len(chunks) >= self._wanted.batch

    def take(self, chunks: Chunks) -> None:
        del chunks
        self._taken += 1
        self.complete = self._taken == self._wanted.steps

    def missing(self) -> str:
        return (
            f"{self._taken} of {self._wanted.steps} decode steps of {self._wanted.batch} requests "
            f"came; the largest batch that decoded had {self._largest}"
        )
