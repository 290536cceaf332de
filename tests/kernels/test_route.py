"""Routing and grouping of experts: the reference's bits, whatever is equal or not a number."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import Isa
from jit_kernels.kernels.route import EXPERT_WORDS, group_rows, route
from jit_kernels.reference import experts as reference
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import compiled, each_isa, run, same_bits

SIZES = [(1, 1), (3, 2), (8, 2), (15, 4), (16, 16), (17, 5), (60, 4), (128, 8)]
"""(experts, top_k)"""


def routed(
    isa: Isa, logits: np.ndarray, top_k: int, *, renormalise: bool
) -> tuple[np.ndarray, np.ndarray]:
    num_rows, num_experts = logits.shape
    ids = guarded(np.full((num_rows, top_k), -1, np.int32))
    weights = guarded(np.full((num_rows, top_k), np.nan, np.float32))
    operands = (guarded(np.array([num_rows])), guarded(logits), num_experts, num_experts, top_k)
    code = compiled(route, isa, renormalise=renormalise)
    run(code, (*operands, ids, weights), num_workers=3)
    return ids, weights


@each_isa
@pytest.mark.parametrize(("num_experts", "top_k"), SIZES)
@pytest.mark.parametrize("renormalise", [False, True])
def test_experts_and_weights_are_the_reference(
    isa: Isa, num_experts: int, top_k: int, renormalise: bool
) -> None:
    logits = np.random.default_rng(top_k).standard_normal((7, num_experts)).astype(np.float32) * 3

    ids, weights = routed(isa, logits, top_k, renormalise=renormalise)

    expected_ids, expected_weights = reference.route(logits, top_k, renormalise=renormalise)
    np.testing.assert_array_equal(ids, expected_ids)
    same_bits(weights, expected_weights)


def test_the_reference_is_softmax_in_float64() -> None:
    logits = np.random.default_rng(4).standard_normal((50, 60))
    ids, weights = reference.route(logits.astype(np.float32), 6, renormalise=False)

    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = -np.sort(-shares, axis=1)[:, :6]
    # exp errs by 2e-7 and has an argument rounded to 2^-24 of at most 8; 60 additions, a division.
    assert np.abs(weights / expected - 1).max() <= 2e-6
    np.testing.assert_array_equal(ids, np.argsort(-shares, axis=1)[:, :6])


@each_isa
def test_equal_logits_go_to_the_lower_expert(isa: Isa) -> None:
    logits = np.zeros((3, 37), np.float32)
    logits[1, [35, 20, 3]] = 2
    logits[2, 0] = -0.0

    ids, _ = routed(isa, logits, 5, renormalise=True)

    assert ids.tolist() == [[0, 1, 2, 3, 4], [3, 20, 35, 0, 1], [0, 1, 2, 3, 4]]


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_has_experts_all_the_same(isa: Isa, bad: float) -> None:
    logits = np.random.default_rng(2).standard_normal((3, 18)).astype(np.float32)
    logits[1] = bad
    clean = np.delete(logits, 1, axis=0)

    ids, weights = routed(isa, logits, 18, renormalise=True)

    assert [sorted(row) for row in ids.tolist()] == [list(range(18))] * 3
    assert np.isnan(weights[1]).all()
    same_bits(np.delete(weights, 1, axis=0), reference.route(clean, 18, renormalise=True)[1])


@each_isa
@pytest.mark.parametrize(("num_rows", "num_experts", "top_k"), [(0, 5, 2), (1, 9, 3), (41, 7, 4)])
def test_pairs_are_sorted_by_expert(isa: Isa, num_rows: int, num_experts: int, top_k: int) -> None:
    random = np.random.default_rng(num_rows)
    chosen = [random.permutation(num_experts)[:top_k] for _ in range(num_rows)]
    ids = np.array(chosen, np.int32).reshape(num_rows, top_k)
    expected = reference.group_rows(ids)
    pairs = num_rows * top_k
    cursors, counts = guarded(np.full(num_experts, -1)), guarded(np.full(2, -1))
    experts = guarded(np.full((len(expected.experts), EXPERT_WORDS), -1))
    token_rows, slots = (guarded(np.full(pairs, -1, np.int32)) for _ in range(2))

    operands = (guarded(np.array([num_rows])), guarded(ids), top_k, num_experts, cursors, counts)
    code = compiled(group_rows, isa)
    run(code, (*operands, experts, token_rows, slots), num_workers=2)

    assert counts.tolist() == [pairs, len(expected.experts)]
    np.testing.assert_array_equal(experts, expected.experts)
    np.testing.assert_array_equal(token_rows, expected.token_rows)
    np.testing.assert_array_equal(slots.reshape(num_rows, top_k), expected.slots)
