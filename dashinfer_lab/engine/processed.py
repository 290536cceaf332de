"""Draws after a function in Python has seen the logits: on this thread, one by one, slow.

All else about the draw stays compiled. Log-probabilities are of the logits as the model made them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine.draws import DrawArrays, draw_words
from dashinfer_lab.engine.foreign import described
from dashinfer_lab.errors import SamplingError
from dashinfer_lab.sampling import LogitEdits, SamplingState
from jit_kernels.compiler import Compiler
from jit_kernels.kernels.sample import NO_TOKEN, sample, sample_workspace_bytes
from jit_kernels.runtime.buffers import aligned

__all__ = ["ProcessedDraws"]

_log = logging.getLogger(__name__)

Logits = NDArray[np.float32]


class ProcessedDraws:
    """Redraws rows whose requests have `process`; says once that this is slow."""

    def __init__(self, compiler: Compiler, vocab_size: int) -> None:
        _log.warning(
            "a request has logits_processors: its every token waits for Python, and so do those "
            "of all other requests"
        )
        self._kernel: Final = sample.specialise().compile(compiler)
        self._draws: Final = DrawArrays(1, vocab_size)
        self._logits: Final = aligned((1, vocab_size), np.float32)
        self._workspace: Final = aligned(sample_workspace_bytes(vocab_size), np.uint8)
        self._rows: Final = np.array([1], np.int64)

    def redraw(self, state: SamplingState, logits: Logits, draws: DrawArrays, row: int) -> None:
        """Draw a row of a step anew from what `state.process` makes of its logits.

        Raises `SamplingError` for what the function raises or returns.
        """
        if state.process is None or not draws.finite_out[row]:
            return
        try:
            changed = _called(state.process, logits)
        except BaseException as error:
            raise SamplingError(f"a logits processor failed: {described(error)}") from error
        token_id = self._drawn(state, changed)
        draws.tokens_out[row] = token_id
        if token_id != NO_TOKEN:
            draws.logits_out[row] = logits[token_id]
            known = logits[: state.num_ids]
            draws.ranks_out[row] = 1 + np.count_nonzero(known > logits[token_id])

    def _drawn(self, state: SamplingState, changed: Logits) -> int:
        possible = changed > -np.inf
        edits = state.edits or LogitEdits()
        if not possible.all():
            allowed = np.flatnonzero(possible)
            if len(edits.allowed):
                allowed = np.intersect1d(allowed, edits.allowed)
            allowed = allowed[: np.searchsorted(allowed, state.num_ids or len(changed))]
            if not len(allowed):
                return NO_TOKEN
            edits = replace(edits, allowed=allowed.astype(np.int32))
        self._logits[0] = np.where(possible, changed, np.float32(0))
        self._draws.write(0, draw_words(replace(state, num_logprobs=None), edits))
        operands: dict[str, Any] = {
            **self._draws.arrays(),
            "rows": self._rows,
            "logits": self._logits,
            "logits_stride": len(changed),
            "vocab": len(changed),
            "requests": self._draws.sampling,
            "workspace": self._workspace,
            "workspace_bytes": self._workspace.nbytes,
        }
        self._kernel(*(operands[parameter.name] for parameter in sample.parameters))
        return int(self._draws.tokens_out[0])


def _called(process: Callable[[Logits], Any], logits: Logits) -> Logits:
    """The function's answer to a copy of the row, checked."""
    answer = np.asarray(process(logits.copy()), np.float32)
    if answer.shape != logits.shape:
        raise ValueError(f"it returned shape {answer.shape}, not {logits.shape}")
    if np.isnan(answer).any() or (answer == np.inf).any():
        raise ValueError("it returned NaN or +inf; -inf excludes a token")
    return answer
