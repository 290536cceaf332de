"""Cosine and sine of rotary position embedding (Su et al. 2021), one row a position.

Scaling is applied here, once, so that no runtime need know it. "dynamic" (NTK by length) turns
faster bases only beyond the context length, which no request exceeds. LongRoPE has two sets of
angles, of which a runtime that serves no more than the original length takes the second.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log, pi

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ModelConfig, RopeConfig
from dashinfer_lab.errors import UnsupportedModelError

__all__ = ["ROPE_SCALINGS", "head_order", "inverse_frequencies", "rotary_table"]

ROPE_SCALINGS = ("none", "linear", "dynamic", "llama3", "yarn", "longrope")
"""Scalings that `inverse_frequencies` knows."""

Frequencies = NDArray[np.float64]


def rotary_table(
    config: ModelConfig, rope: RopeConfig
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cos and sin of p * frequency, each float32 [num_rotary_rows, D/2].

    Computed in float64 and rounded once, so that large positions keep their accuracy. Where only a
    part of each head turns, the pairs after it have cosine 1 and sine 0: see `head_order`. A model
    whose base follows the prompt has all positions once for each of its stages; one with LongRoPE
    has the original positions once more, turned by the short factors.
    Raises UnsupportedModelError for a scaling this version does not know.
    """
    rotary_dim = int(config.head_dim * rope.partial_factor)
    still = ((0, 0), (0, (config.head_dim - rotary_dim) // 2))
    short = replace(rope, long_factors=rope.short_factors)
    is_long = rope.scaling != "longrope" or config.num_short_rows > 0
    turned = [
        replace(rope if is_long else short, theta=rope.theta * _ntk_growth(stage, rotary_dim))
        for stage in range(config.num_rotary_stages)
    ]
    angle = np.concatenate(
        [_angles(each, rotary_dim, config.context_length) for each in turned]
        + [_angles(short, rotary_dim, config.num_short_rows)]
    )
    gain = rope.attention_factor
    cos = np.pad(gain * np.cos(angle), still, constant_values=1)
    return cos.astype(np.float32), np.pad(gain * np.sin(angle), still).astype(np.float32)


def _angles(rope: RopeConfig, rotary_dim: int, num_positions: int) -> Frequencies:
    positions = np.arange(num_positions, dtype=np.float64)
    return np.outer(positions, inverse_frequencies(rope, rotary_dim))


def _ntk_growth(stage: int, rotary_dim: int) -> float:
    """What a base is multiplied by: the slowest pair then turns 2^(stage + 1) - 1 times slower."""
    return 1.0 if stage == 0 else (2.0 ** (stage + 1) - 1) ** (rotary_dim / (rotary_dim - 2))


def head_order(rope: RopeConfig, head_dim: int) -> tuple[int, ...]:
    """Order in which a checkpoint's head rows have every pair half a head apart.

    Turning then is the same for all models: pairs that lie side by side (interleaved) are drawn
    apart, and what never turns is paired after what does. Empty where nothing changes. Scores keep
    their meaning, for queries and keys are ordered alike.
    """
    rotary_dim = int(head_dim * rope.partial_factor)
    turning = np.arange(rotary_dim).reshape((-1, 2) if rope.interleaved else (2, -1))
    pairs = turning if rope.interleaved else turning.T
    still = np.arange(rotary_dim, head_dim).reshape(2, -1).T
    order = np.concatenate([pairs, still]).T.reshape(-1)
    return () if (np.diff(order) == 1).all() else tuple(order.tolist())


def inverse_frequencies(rope: RopeConfig, rotary_dim: int) -> Frequencies:
    """Return the angle by which each of D/2 pairs turns from one position to the next.

    LongRoPE's are those of `long_factors` (Ding et al. 2024). Raises UnsupportedModelError.
    """
    if rope.scaling not in ROPE_SCALINGS:
        raise UnsupportedModelError(
            f"rope scaling {rope.scaling!r} is not supported; "
            "answers would be wrong beyond the first positions, so the model is refused"
        )
    exponent = np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    frequency = rope.theta**-exponent
    if rope.scaling == "linear":
        return frequency / rope.factor
    if rope.scaling == "llama3":
        return _llama3(frequency, rope)
    if rope.scaling == "yarn":
        return _yarn(frequency, rope, rotary_dim)
    if rope.scaling == "longrope":
        return frequency / np.array(rope.long_factors)
    return frequency


def _llama3(frequency: Frequencies, rope: RopeConfig) -> Frequencies:
    """Slow pairs are stretched, fast ones kept, those between blended (Llama 3.1, Meta 2024)."""
    turns = rope.original_length * frequency / (2 * pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = np.clip(blend, 0, 1)
    return frequency * (kept + (1 - kept) / rope.factor)


def _yarn(frequency: Frequencies, rope: RopeConfig, rotary_dim: int) -> Frequencies:
    """Blend kept and stretched pairs along a ramp over their number (Peng et al. 2023, 3.2)."""

    def pair_of(turns: float) -> float:
        return rotary_dim * log(rope.original_length / (turns * 2 * pi)) / (2 * log(rope.theta))

    low, high = pair_of(rope.beta_fast), pair_of(rope.beta_slow)
    if rope.truncate:
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    width = high - low if high != low else 0.001
    stretched = np.clip((np.arange(rotary_dim // 2, dtype=np.float64) - low) / width, 0, 1)
    return frequency * (1 - stretched + stretched / rope.factor)
