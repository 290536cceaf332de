"""What transformers computes in fp32 from the embedded model, for tests that have no torch.

Written by `tests/oracle/generate_expected.py`. A whole row of logits would be 200 KB, so a row is
kept as its largest value, where that stands, its largest magnitude and 16 samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXPECTED_FILE", "ExpectedPrompt", "load_expected"]

EXPECTED_FILE = Path(__file__).with_name("smollm2_135m.npz")


@dataclass(frozen=True, slots=True)
class ExpectedPrompt:
    """One prompt of T tokens, a fingerprint of its logits, and its greedy continuation."""

    name: str
    text: str
    token_ids: NDArray[np.int64]
    """[T]"""
    sample_ids: NDArray[np.int64]
    """[T, 16] vocabulary ids, different at every position."""
    samples: NDArray[np.float32]
    """[T, 16] logits at those ids."""
    argmax: NDArray[np.int64]
    """[T]"""
    row_max: NDArray[np.float32]
    """[T] logit at `argmax`."""
    row_max_abs: NDArray[np.float32]
    """[T] largest magnitude of the row, the unit of every tolerance."""
    greedy: NDArray[np.int64]
    """[48] the continuation by arg-max; an end-of-sequence token does not end it."""
    greedy_margin: float
    """Smallest lead of first over second among those choices, in units of the row's largest."""

    def error(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Largest deviation [T] of logits [T, vocab] in any kept value, relative to the row."""
        rows = np.arange(len(self.token_ids))[:, None]
        ids = np.column_stack([self.sample_ids, self.argmax])
        actual = np.column_stack([logits[rows, ids], logits.max(axis=1)]).astype(np.float64)
        expected = np.column_stack([self.samples, self.row_max, self.row_max])
        return np.abs(actual - expected).max(axis=1) / self.row_max_abs


def load_expected(path: Path = EXPECTED_FILE) -> tuple[ExpectedPrompt, ...]:
    """Read the committed prompts, the shortest first."""
    with np.load(path) as file:
        return tuple(
            ExpectedPrompt(
                name=str(name),
                text=str(file[f"{name}.text"]),
                token_ids=file[f"{name}.token_ids"].astype(np.int64),
                sample_ids=file[f"{name}.sample_ids"].astype(np.int64),
                samples=file[f"{name}.samples"],
                argmax=file[f"{name}.argmax"].astype(np.int64),
                row_max=file[f"{name}.row_max"],
                row_max_abs=file[f"{name}.row_max_abs"],
                greedy=file[f"{name}.greedy"].astype(np.int64),
                greedy_margin=float(file[f"{name}.greedy_margin"]),
            )
            for name in file["names"]
        )
