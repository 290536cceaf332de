"""What one step of the engine held and how long its parts took; data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["ChunkSpan", "Phase", "StepShape", "StepTimes"]

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Tokens `start` to `start + length` of one request.

    decoding: they follow a drawn token.  reaches_end: no known token is left to compute.
    arrival_seconds: when the request came, on the clock of the steps.
    num_shared: first tokens of the request that it found computed.
    """

    request_id: int
    start: int
    length: int
    decoding: bool
    reaches_end: bool
    arrival_seconds: float
    pages: Sequence[int] = ()
    num_shared: int = 0

    @property
    def begins(self) -> bool:
        """Whether these are the first tokens that are computed for a request."""
        return self.start == self.num_shared and not self.decoding

    @property
    def end(self) -> int:
        """Position behind the last token."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class StepShape:
    """The chunks of a step, its rows of logits, and segments of attention that were split off."""

    chunks: tuple[ChunkSpan, ...]
    num_logit_rows: int
    num_partials: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return sum(chunk.length for chunk in self.chunks)

    @property
    def phase(self) -> Phase:
        """Prefill where any token of it belongs to a prompt."""
        return "decode" if all(chunk.decoding for chunk in self.chunks) else "prefill"

    def rows(self, counter: str) -> int:
        """Rows an operation works on, by the counter it reads."""
        return self.num_logit_rows if counter == "num_logit_rows" else self.num_tokens


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """Seconds of one step, all of it and its parts; operations' are worker 0's, waits included.

    input_seconds: laying out the step.  compute_seconds: the foreign call that ran everything.
    """

    shape: StepShape
    op_seconds: NDArray[np.float64]
    begin_seconds: float
    input_seconds: float
    compute_seconds: float
    result_seconds: float
    wall_seconds: float

    @property
    def phase(self) -> Phase:
        """See `StepShape.phase`."""
        return self.shape.phase

    @property
    def num_tokens(self) -> int:
        """Tokens computed."""
        return self.shape.num_tokens

    @property
    def join_seconds(self) -> float:
        """Waking the workers and waiting for the last."""
        return max(0.0, self.compute_seconds - float(self.op_seconds.sum()))

    @property
    def end_seconds(self) -> float:
        """When the results were out."""
        return self.begin_seconds + self.wall_seconds
