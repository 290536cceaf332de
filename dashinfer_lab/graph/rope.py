"""Cosine and sine of rotary position embedding (Su et al. 2021), one row a position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.errors import UnsupportedModelError

__all__ = ["rotary_table"]


def rotary_table(config: ModelConfig) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cos and sin of p * theta^(-2i/D), each float32 [context_length, D/2].

    Computed in float64 and rounded once, so that large positions keep their accuracy.
    Raises UnsupportedModelError for a scaling this version does not know.
    """
    if config.rope.scaling != "none":
        raise UnsupportedModelError(
            f"rope scaling {config.rope.scaling!r} is not supported; "
            "answers would be wrong beyond the first positions, so the model is refused"
        )
    rotary_dim = int(config.head_dim * config.rope.partial_factor)
    exponent = np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    positions = np.arange(config.context_length, dtype=np.float64)
    angle = np.outer(positions, config.rope.theta**-exponent)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
