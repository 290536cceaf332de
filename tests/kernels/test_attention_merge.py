"""The merge of segments that were attended to apart, from any states."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernels.attention import partial_floats
from jit_kernels.kernels.attention_merge import SPLIT_WORDS, attention_merge
from jit_kernels.reference.attention import State, merge
from tests.kernels.attention_cases import words
from tests.kernels.guarded import guarded, guarded_before
from tests.kernels.machine_code import compiled, each_isa, run, same_bits

HEAD_DIM, HEADS_PER_KV, NUM_KV_HEADS = 48, 3, 2
WIDTH = NUM_KV_HEADS * HEADS_PER_KV * HEAD_DIM
# {row, number of segments, first slot}; row 1 is not split.
SPLITS = [(3, 1, 0), (0, 9, 1), (2, 2, 10), (4, 3, 12)]


def states() -> np.ndarray:
    """[slot, kv head, query head, D + 16]: o, m, l, and what a merge must not look at."""
    assert partial_floats(HEAD_DIM, HEADS_PER_KV) == HEADS_PER_KV * (HEAD_DIM + 16)
    rng = np.random.default_rng(0)
    partials = np.full((15, NUM_KV_HEADS, HEADS_PER_KV, HEAD_DIM + 16), np.nan, np.float32)
    partials[..., :HEAD_DIM] = rng.standard_normal((15, NUM_KV_HEADS, HEADS_PER_KV, HEAD_DIM))
    partials[..., HEAD_DIM] = 20 * rng.standard_normal((15, NUM_KV_HEADS, HEADS_PER_KV))
    partials[..., HEAD_DIM + 1] = 1 + 127 * rng.random((15, NUM_KV_HEADS, HEADS_PER_KV))
    return partials


def expected_of(partials: np.ndarray) -> np.ndarray:
    out = np.full((5, WIDTH), -1, np.float32)
    for row, count, first in SPLITS:
        shape = (1, NUM_KV_HEADS * HEADS_PER_KV)
        run_state = State(
            np.full(shape, -np.inf, np.float32),
            np.zeros(shape, np.float32),
            np.zeros((*shape, HEAD_DIM), np.float32),
        )
        for part in partials[first : first + count].reshape(count, 1, -1, HEAD_DIM + 16):
            o, m, total = part[..., :HEAD_DIM], part[..., HEAD_DIM], part[..., HEAD_DIM + 1]
            run_state = merge(run_state, State(m, total, o))
        with np.errstate(all="ignore"):
            out[row] = (run_state.o / run_state.total[..., None]).reshape(-1)
    return out


def merged(
    partials: np.ndarray,
    isa: Isa,
    *,
    num_splits: int = len(SPLITS),
    num_workers: int = 1,
    place: Callable[[np.ndarray], np.ndarray] = guarded,
) -> np.ndarray:
    out = place(np.full((5, WIDTH), -1, np.float32))
    operands = (
        place(np.array([num_splits])), place(words(SPLITS, SPLIT_WORDS)), place(partials), out,
        WIDTH, NUM_KV_HEADS, np.zeros(1, np.int64), np.zeros(5, np.int32), 0,
    )  # fmt: skip
    code = compiled(attention_merge, isa, head_dim=HEAD_DIM, heads_per_kv=HEADS_PER_KV)
    run(code, operands, num_workers)
    return out


@each_isa
def test_segments_are_merged_in_their_order(isa: Isa) -> None:
    partials = states()

    same_bits(merged(partials, isa), expected_of(partials))


@pytest.mark.parametrize("num_workers", [2, 3])
def test_the_number_of_workers_changes_nothing(num_workers: int) -> None:
    partials = states()

    out = merged(partials, AVX2, num_workers=num_workers, place=guarded_before)

    same_bits(out, expected_of(partials))


def test_no_splits_write_nothing() -> None:
    assert (merged(states(), AVX2, num_splits=0) == -1).all()


def test_a_segment_that_is_not_finite_spoils_its_row_alone() -> None:
    partials = states()
    clean = expected_of(partials)
    partials[4, :, :, HEAD_DIM + 1] = np.nan  # of row 0

    out = merged(partials, AVX2)

    assert np.isnan(out[0]).all()
    same_bits(out[1:], clean[1:])
