"""Heads laid out at conversion turn as the checkpoint says, with pairs half a head apart."""

from __future__ import annotations

import numpy as np
import pytest

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.graph.rope import head_order, rotary_table
from tests.convert.memory_checkpoint import tiny_config

HEAD_DIM, POSITION = 32, 37


def turned(head: np.ndarray, rope: RopeConfig, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The head turned pair by pair as its checkpoint has it; cos, sin are of the turning pairs."""
    rotary_dim = 2 * len(cos)
    result = head.copy()
    for pair in range(len(cos)):
        one, other = (2 * pair, 2 * pair + 1) if rope.interleaved else (pair, pair + len(cos))
        assert other < rotary_dim
        result[one] = head[one] * cos[pair] - head[other] * sin[pair]
        result[other] = head[other] * cos[pair] + head[one] * sin[pair]
    return result


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("partial", [0.25, 0.5, 0.75, 1.0])
def test_turning_halves_of_the_new_order_is_turning_pairs_of_the_old(
    partial: float, interleaved: bool
) -> None:
    rope = RopeConfig(theta=100.0, partial_factor=partial, interleaved=interleaved)
    cos, sin = (
        table[POSITION]
        for table in rotary_table(tiny_config(head_dim=HEAD_DIM, context_length=40), rope)
    )
    order = list(head_order(rope, HEAD_DIM) or range(HEAD_DIM))
    head = np.random.default_rng(3).standard_normal(HEAD_DIM)
    num_turning = int(partial * HEAD_DIM / 2)

    lower, upper = np.split(head[order], 2)
    ours = np.concatenate([lower * cos - upper * sin, upper * cos + lower * sin])

    expected = turned(head, rope, cos[:num_turning], sin[:num_turning])
    np.testing.assert_array_equal(ours, expected[order])
    assert (cos[num_turning:] == 1).all()
    assert (sin[num_turning:] == 0).all()
    assert sorted(order) == list(range(HEAD_DIM))


def test_heads_whose_halves_are_pairs_stay_as_they_are() -> None:
    assert head_order(RopeConfig(), 64) == ()
