"""Rows and requests of `sample` as operands that end at forbidden pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jit_kernels.isa import Isa
from jit_kernels.kernels.sample import sample, sample_workspace_bytes
from jit_kernels.kernels.sample_request import REQUEST_WORDS, DrawWords
from jit_kernels.kernels.sample_top import TOP_LOGITS
from jit_kernels.reference.sample import Request
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import compiled, run

__all__ = ["UNWRITTEN", "Drawn", "drawn", "logits_of"]

UNWRITTEN = -77


@dataclass
class Drawn:
    """What the kernel wrote for each row; `weights` are those of each worker's last row."""

    tokens: np.ndarray
    finite: np.ndarray
    logsumexp: np.ndarray
    weights: np.ndarray
    ranks: np.ndarray
    logits: np.ndarray
    top_ids: np.ndarray
    top_logits: np.ndarray


@dataclass
class _Rows:
    """Requests written down, and the lists they point to."""

    words: np.ndarray
    lists: list[np.ndarray] = field(default_factory=list[np.ndarray])

    def listed(self, entries: Sequence[object]) -> tuple[int, int]:
        """Entries of int32 words, flush against a forbidden page: their number and address."""
        if not entries:
            return 0, 0
        array = guarded(np.array(entries, np.int32))
        self.lists.append(array)
        return len(entries), array.ctypes.data


def _written(requests: Sequence[Request], **words: int | None) -> _Rows:
    rows = _Rows(guarded(np.zeros((len(requests), REQUEST_WORDS), np.int64)))
    for row, each in enumerate(requests):
        biases = [
            (token, int(np.array([bias], np.float32).view(np.int32)[0]))
            for token, bias in each.biases
        ]
        DrawWords(
            each.temperature, each.top_k, each.top_p, each.seed, each.choice, each.position,
            each.min_p, **words,
            allowed=rows.listed(each.allowed), biases=rows.listed(biases),
            penalised=rows.listed(list(each.counts.items())),
            repetition=each.repetition, presence=each.presence, frequency=each.frequency,
        ).write(rows.words.data.cast("B"), row)  # fmt: skip
    return rows


def drawn(
    isa: Isa,
    logits: np.ndarray,
    requests: Sequence[Request],
    num_workers: int = 1,
    vocab: int | None = None,
    **words: int | None,
) -> Drawn:
    """Draw once for each request; `words` are other fields of `DrawWords`, for all alike.

    A row reports its own token unless `report` says otherwise.
    """
    words = {"report": 1, **words}
    logits, num_rows = np.atleast_2d(logits), len(requests)
    stride = logits.shape[1] if len(logits) == num_rows else 0
    vocab = vocab or logits.shape[1]
    num_bytes = sample_workspace_bytes(vocab)
    workspace = guarded(np.full((num_workers, num_bytes), 0xFF, np.uint8))
    rows = _written(requests, **words)
    tokens, finite, ranks = (guarded(np.full(num_rows, UNWRITTEN, np.int32)) for _ in range(3))
    logsumexp, own = (
        guarded(np.full(num_rows, UNWRITTEN, np.float32)),
        guarded(np.zeros(num_rows, np.float32)),
    )
    top_ids = guarded(np.full((num_rows, TOP_LOGITS), UNWRITTEN, np.int32))
    top_logits = guarded(np.full((num_rows, TOP_LOGITS), UNWRITTEN, np.float32))
    before = logits.copy()
    operands = (
        guarded(np.array([num_rows])), guarded(logits), stride, vocab, rows.words,
        tokens, finite, logsumexp, ranks, own, top_ids, top_logits, workspace, num_bytes,
    )  # fmt: skip
    run(compiled(sample, isa), operands, num_workers)
    np.testing.assert_array_equal(logits, before)
    weights = workspace.view(np.float32)[:, :vocab]
    return Drawn(tokens, finite, logsumexp, weights, ranks, own, top_ids, top_logits)


def logits_of(vocab: int, seed: int = 0, spread: float = 3.0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(vocab) * spread
    return values.astype(np.float32)
