"""Collects the times of steps while they run; one thread records, any may read afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["OpLabel", "Phase", "ProfileRecorder", "StepTimes"]

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class OpLabel:
    """What an operation is called: its kernel, its place in the model, its layer if it has one."""

    kernel: str
    name: str
    layer: int | None


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """Seconds of one step: of each operation, of laying out inputs, of reading results, of all."""

    phase: Phase
    num_tokens: int
    op_seconds: NDArray[np.float64]
    input_seconds: float
    result_seconds: float
    wall_seconds: float


class ProfileRecorder:
    """The steps seen so far, and the labels of the program's operations."""

    def __init__(self, labels: Sequence[OpLabel]) -> None:
        self.labels = tuple(labels)
        self.steps: list[StepTimes] = []

    def add(
        self,
        *,
        phase: Phase,
        num_tokens: int,
        op_seconds: NDArray[Any],
        input_seconds: float,
        result_seconds: float,
        wall_seconds: float,
    ) -> None:
        """Take in a step."""
        seconds = np.array(op_seconds, np.float64)
        self.steps.append(
            StepTimes(phase, num_tokens, seconds, input_seconds, result_seconds, wall_seconds)
        )
