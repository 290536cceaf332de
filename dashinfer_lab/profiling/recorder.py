"""Collects the times of steps while they run; one thread records, any may read afterwards."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dashinfer_lab.profiling.capture import Capture
from dashinfer_lab.profiling.memory_map import MemoryMap
from dashinfer_lab.profiling.steps import ChunkSpan, StepTimes
from dashinfer_lab.profiling.work import ProfiledOp

__all__ = ["Machine", "PageOwners", "ProfileRecorder"]

PageOwners = tuple[tuple[int, tuple[int, ...]], ...]
"""Requests and their pages of the key/value cache."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What ran where."""

    model: str
    scheme: str
    isa: str
    threads: int

    def __str__(self) -> str:
        return f"{self.model}, {self.scheme}, {self.isa}, {self.threads_text}"

    @property
    def threads_text(self) -> str:
        """Number and noun."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"


class ProfileRecorder:
    """The steps seen so far, and the operations of the program they ran.

    With `capture` only the steps it wants. With `max_steps` the latest so many; `num_dropped`
    counts the others.
    """

    def __init__(
        self,
        ops: Sequence[ProfiledOp],
        *,
        machine: Machine | None = None,
        memory: MemoryMap | None = None,
        capture: Capture | None = None,
        max_steps: int | None = None,
    ) -> None:
        self.ops = tuple(ops)
        self.machine = machine
        self.memory = memory
        self.steps: deque[StepTimes] = deque(maxlen=max_steps)
        self.num_dropped = 0
        self.page_owners: PageOwners = ()
        self._capture = None if capture is None else capture.begin()
        self._completed = threading.Event()

    @property
    def complete(self) -> bool:
        """Whether a capture has all it wanted; never so without one."""
        return self._completed.is_set()

    @property
    def missing(self) -> str | None:
        """What a capture still waits for, in words; None where nothing is missing."""
        return None if self._capture is None or self.complete else self._capture.missing()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a capture is complete; False after `timeout` seconds."""
        return self._completed.wait(timeout)

    def wants(self, chunks: Sequence[ChunkSpan]) -> bool:
        """Whether the step that is about to run is to be timed."""
        return not self.complete and (self._capture is None or self._capture.wants(chunks))

    def add(self, step: StepTimes) -> None:
        """Take in a step that was wanted."""
        self.num_dropped += len(self.steps) == self.steps.maxlen
        self.steps.append(step)
        self._keep_pages(step.shape.chunks)
        if self._capture is not None:
            self._capture.take(step.shape.chunks)
            if self._capture.complete:
                self._completed.set()

    def _keep_pages(self, chunks: Sequence[ChunkSpan]) -> None:
        """Remember who owned which page when most were in use."""
        held = sum(len(pages) for _, pages in self.page_owners)
        if sum(len(chunk.pages) for chunk in chunks) > held:
            self.page_owners = tuple((chunk.request_id, tuple(chunk.pages)) for chunk in chunks)
