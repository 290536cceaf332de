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
    """Seconds of one step, all of it and its parts.

    join_seconds: waking the workers and waiting for the last.
    """

    phase: Phase
    num_tokens: int
    op_seconds: NDArray[np.float64]
    input_seconds: float
    join_seconds: float
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
        compute_seconds: float,
        result_seconds: float,
        wall_seconds: float,
    ) -> None:
        """Take in a step; `compute_seconds` is the foreign call that ran all operations."""
        seconds = np.array(op_seconds, np.float64)
        self.steps.append(
            StepTimes(
                phase=phase,
                num_tokens=num_tokens,
                op_seconds=seconds,
                input_seconds=input_seconds,
                join_seconds=max(0.0, compute_seconds - float(seconds.sum())),
                result_seconds=result_seconds,
                wall_seconds=wall_seconds,
            )
        )
