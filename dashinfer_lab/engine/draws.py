"""What a step's draws read and write, a row of logits each; knows no kernel but sample's layout."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine.batch import Chunk, ChunkResult
from dashinfer_lab.errors import SamplingError
from dashinfer_lab.sampling import LogitEdits, SamplingState, TokenLogprobs
from jit_kernels.kernels.sample import NO_TOKEN
from jit_kernels.kernels.sample_request import REQUEST_WORDS, DrawWords
from jit_kernels.kernels.sample_top import TOP_LOGITS
from jit_kernels.runtime.buffers import aligned

__all__ = ["DrawArrays", "draw_words"]

_UNDRAWN: Final = DrawWords(temperature=0.0)
_NO_TOKEN: Final = (
    "no token may be drawn: allowed ids, bad words, min_tokens and no_repeat_ngram_size together "
    "exclude all of them; loosen one"
)


class DrawArrays:
    """Requests [R][REQUEST_WORDS], tokens, and what is reported of them."""

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        self._vocab_size: Final = vocab_size
        self.sampling = aligned((max_rows, REQUEST_WORDS), np.int64)
        self.tokens_out = aligned(max_rows, np.int32)
        self.finite_out = aligned(max_rows, np.int32)
        self.logsumexp_out = aligned(max_rows, np.float32)
        self.ranks_out = aligned(max_rows, np.int32)
        self.logits_out = aligned(max_rows, np.float32)
        self.top_ids_out = aligned((max_rows, TOP_LOGITS), np.int32)
        self.top_logits_out = aligned((max_rows, TOP_LOGITS), np.float32)
        self._words: Final = self.sampling.data.cast("B")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by the name that plans use."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def fill(self, rows: slice, chunk: Chunk) -> None:
        """Write the requests of a chunk's rows: the last draws, others may be scored."""
        state, scoring = chunk.sampling, chunk.scoring
        last = rows.stop - 1 if state is not None else rows.stop
        for row in range(rows.start, last):
            self.write(row, _UNDRAWN)
        if scoring is not None:
            for row, target in enumerate(scoring.targets, start=rows.start):
                report = 1 + scoring.num_logprobs
                words = DrawWords(0.0, num_ids=scoring.num_ids or 0, report=report, target=target)
                self.write(row, words)
        if state is not None and last >= rows.start:
            self.write(last, draw_words(state))

    def write(self, row: int, words: DrawWords) -> None:
        """Write one row's request."""
        words.write(self._words, row)

    def result(self, chunk: Chunk, rows: slice) -> ChunkResult:
        """What the rows of a chunk gave, but for logits."""
        if not self.finite_out[rows].all():
            return ChunkResult(finite=False)
        found: list[TokenLogprobs] = []
        scoring, state = chunk.scoring, chunk.sampling
        if scoring is not None:
            for row, target in enumerate(scoring.targets, start=rows.start):
                count = self._num_reported(scoring.num_logprobs, scoring.num_ids)
                found.append(self._logprobs(row, target, count))
        if state is None:
            return ChunkResult(prompt_logprobs=found)
        row = rows.stop - 1
        token_id = int(self.tokens_out[row])
        if token_id == NO_TOKEN:
            return ChunkResult(error=SamplingError(_NO_TOKEN))
        logprobs = None
        if state.num_logprobs is not None:
            count = self._num_reported(state.num_logprobs, state.num_ids)
            logprobs = self._logprobs(row, token_id, count)
        return ChunkResult(token_id, logprobs, prompt_logprobs=found)

    def _num_reported(self, wanted: int, num_ids: int | None) -> int:
        return min(wanted, TOP_LOGITS, num_ids or self._vocab_size, self._vocab_size)

    def _logprobs(self, row: int, token_id: int, count: int) -> TokenLogprobs:
        """What a row reported of its target and of the likeliest, ties to the lowest id."""
        total = float(self.logsumexp_out[row])
        logits = self.top_logits_out[row, :count].tolist()
        ids = self.top_ids_out[row, :count].tolist()
        top = [(i, logit - total) for i, logit in zip(ids, logits, strict=True)]
        own = float(self.logits_out[row]) - total
        return TokenLogprobs(token_id, own, int(self.ranks_out[row]), tuple(top))


def draw_words(state: SamplingState, edits: LogitEdits | None = None) -> DrawWords:
    """A draw as the kernel reads it; `edits` instead of the state's own."""
    edits = edits or state.edits
    report = 0 if state.num_logprobs is None else 1 + state.num_logprobs
    plain = (
        state.temperature,
        state.top_k,
        state.top_p,
        state.seed,
        state.choice,
        state.position,
        state.min_p,
        state.num_ids or 0,
        report,
    )
    if edits is None:
        return DrawWords(*plain)
    return DrawWords(
        *plain,
        allowed=_listed(edits.allowed),
        biases=_listed(edits.biases),
        penalised=_listed(edits.penalised),
        repetition=edits.repetition,
        presence=edits.presence,
        frequency=edits.frequency,
    )


def _listed(entries: NDArray[np.int32]) -> tuple[int, int]:
    """Number and address."""
    return len(entries), entries.ctypes.data if len(entries) else 0
