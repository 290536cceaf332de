"""A request for logits at chosen positions; draws nothing and knows no text."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine.batch import ChunkResult
from dashinfer_lab.engine.request import Request, Span
from dashinfer_lab.errors import DashInferLabError, EngineError
from dashinfer_lab.sampling import SamplingState

__all__ = ["LogitRequest"]


class LogitRequest(Request):
    """Computes tokens and keeps the logits at `positions` (ascending, distinct, not empty).

    `answer` gets float32 [len(positions), vocab] or the error, once.
    """

    def __init__(
        self,
        request_id: int,
        token_ids: Sequence[int],
        positions: Sequence[int],
        *,
        vocab_size: int,
        arrival_seconds: float,
    ) -> None:
        needed = positions[-1] + 1  # no position depends on a later token
        super().__init__(request_id, token_ids[:needed], needed, arrival_seconds)
        self.prompt_length = len(token_ids)
        self.answer: Final[SimpleQueue[NDArray[np.float32] | DashInferLabError]] = SimpleQueue()
        self._positions: Final = positions
        self._rows: Final = np.empty((len(positions), vocab_size), np.float32)
        self._num_rows = 0
        self._end: NDArray[np.float32] | DashInferLabError | None = None

    @property
    def num_skippable(self) -> int:
        """Tokens before the first one whose logits are still wanted."""
        return self._positions[self._num_rows]

    def plan(self, max_tokens: int, max_rows: int) -> Span | None:
        """Choose a run of wanted positions, or the tokens before the next one."""
        start = self.num_computed
        unwanted = self._positions[self._num_rows] - start
        if unwanted > 0:
            length = min(unwanted, max_tokens)
            return Span(start, length, "none") if length > 0 else None
        length = min(self._run_length(max_tokens), max_tokens, max_rows)
        return Span(start, length, "all") if length > 0 else None

    def sampling(self, span: Span) -> SamplingState | None:
        """Nothing is drawn."""
        del span
        return None

    def accept(self, span: Span, result: ChunkResult, now_seconds: float) -> None:
        """Keep the rows; the last ones finish the request."""
        del now_seconds
        if span.logit_rows == "none":
            return
        logits = result.logits
        if logits is None or logits.shape != (span.length, self._rows.shape[1]):
            raise EngineError(
                f"the model owes request {self.request_id} logits of shape "
                f"{(span.length, self._rows.shape[1])}, not {getattr(logits, 'shape', None)}"
            )
        self._rows[self._num_rows : self._num_rows + span.length] = logits
        self._num_rows += span.length
        if self._num_rows == len(self._positions):
            self._finish(self._rows)

    def fail(self, error: DashInferLabError, now_seconds: float) -> None:
        """Finish with an error."""
        del now_seconds
        self._finish(error)

    def cancel(self, now_seconds: float) -> None:
        """Finish early."""
        del now_seconds
        self._finish(EngineError(f"request {self.request_id} was cancelled"))

    def _run_length(self, limit: int) -> int:
        """Count wanted positions that follow each other without a gap, up to a limit."""
        wanted = self._positions[self._num_rows : self._num_rows + limit]
        return next((i for i, p in enumerate(wanted) if p != wanted[0] + i), len(wanted))

    def _finish(self, answer: NDArray[np.float32] | DashInferLabError) -> None:
        self.leave()
        self._end = answer

    def tell_end(self) -> None:
        """Give the rows, or the error."""
        if self._end is not None:
            self.answer.put(self._end)
