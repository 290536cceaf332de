"""What transformers computes in fp32 from the families' tiny checkpoints, for tests without torch.

Written by `tests/oracle/generate_families.py`. A row of logits is kept as its largest value, where
that stands, its largest magnitude and every 23rd value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["STEP", "FamilyLogits", "family_file", "load_family"]

_DIRECTORY = Path(__file__).with_name("families")
STEP = 23


@dataclass(frozen=True, slots=True)
class FamilyLogits:
    """A fingerprint of the logits [T, vocab] that follow the common tokens."""

    argmax: NDArray[np.int64]
    """[T]"""
    row_max_abs: NDArray[np.float32]
    """[T] largest magnitude of a row, the unit of every tolerance."""
    samples: NDArray[np.float32]
    """[T, vocab / 23] logits of every 23rd id."""

    @staticmethod
    def of(logits: NDArray[np.float32]) -> FamilyLogits:
        """Take the fingerprint of logits [T, vocab]."""
        return FamilyLogits(
            logits.argmax(axis=1).astype(np.int64),
            np.abs(logits).max(axis=1),
            logits[:, ::STEP].copy(),
        )

    def error(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """Largest deviation [T] of logits [T, vocab] in any kept value, relative to the row."""
        actual = FamilyLogits.of(logits)
        samples = np.abs(actual.samples.astype(np.float64) - self.samples).max(axis=1)
        largest = np.abs(actual.row_max_abs.astype(np.float64) - self.row_max_abs)
        return np.maximum(samples, largest) / self.row_max_abs


def family_file(name: str) -> Path:
    """Where the fingerprint of the case called `name` is kept."""
    return _DIRECTORY / f"{re.sub(r'[^a-z0-9]+', '_', name.lower())}.npz"


def load_family(name: str) -> FamilyLogits:
    """Read the committed fingerprint of the case called `name`."""
    with np.load(family_file(name)) as file:
        return FamilyLogits(file["argmax"].astype(np.int64), file["row_max_abs"], file["samples"])
