"""What the compiled sampler needs for one draw; knows no request and no text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    Logits = NDArray[np.float32]

__all__ = ["LogitEdits", "SamplingState"]


def _no_ids() -> NDArray[np.int32]:
    return np.empty(0, np.int32)


def _no_pairs() -> NDArray[np.int32]:
    return np.empty((0, 2), np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class LogitEdits:
    """What a draw changes of the logits, in order; ids lie within the vocabulary.

    allowed: the ids that stay, all where empty.  biases: [B][2] of id and float32 bits, -inf bans.
    penalised: [P][2] of id, each once, and how often it is in the output.  All int32, contiguous;
    the sampler reads them where they are, so they must not change before the step has ended.
    """

    allowed: NDArray[np.int32] = field(default_factory=_no_ids)
    biases: NDArray[np.int32] = field(default_factory=_no_pairs)
    penalised: NDArray[np.int32] = field(default_factory=_no_pairs)
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0


@dataclass(frozen=True, slots=True)
class SamplingState:
    """One draw. Temperature 0 is arg-max; top_k 0, top_p 1 and min_p 0 are off.

    The random number depends on (seed, choice, position) alone, where `position` is the place the
    drawn token will take in its sequence: the same with whatever company, and after recomputing.
    num_ids: ids that may be drawn, from 0 on; None is all.
    ruled: edits may come with any later draw, if none came with this one.
    process: a function in Python, given a copy of the logits that it may change and return.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    choice: int
    position: int
    num_logprobs: int | None
    min_p: float = 0.0
    num_ids: int | None = None
    edits: LogitEdits | None = None
    ruled: bool = False
    process: Callable[[Logits], Any] | None = None

    @property
    def needs_history(self) -> bool:
        """Whether the next draw depends on this one by more than its position."""
        return self.ruled or self.edits is not None or self.process is not None
