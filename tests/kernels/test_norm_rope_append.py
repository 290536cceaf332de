"""QK-norm, RoPE and the cache: heads normalised, then turned, and kept where asked."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import AVX2, NEON, Isa
from jit_kernels.kernels.norm_rope_append import norm_rope_append
from jit_kernels.reference import rope
from jit_kernels.reference.rmsnorm import rmsnorm, rmsnorm_bits
from tests.kernels.guarded import guarded, guarded_before
from tests.kernels.machine_code import compiled, each_isa, run, same_bits
from tests.kernels.test_rope_append import NUM_HEADS, NUM_KV_HEADS, Case, append, case, empty_pages

EPS = 1e-5


def weights(head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(head_dim)
    q, k = 1 + 0.3 * random.standard_normal((2, head_dim))
    return q.astype(np.float32), k.astype(np.float32)


def parts(c: Case, head_dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v of every row, [R, H, D] each."""
    heads = c.qkv.reshape(len(c.qkv), NUM_HEADS + 2 * NUM_KV_HEADS, head_dim)
    q, k, v = np.split(heads, [NUM_HEADS, NUM_HEADS + NUM_KV_HEADS], 1)
    return q, k, v


def expected_of(c: Case, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    pages, (q_weight, k_weight) = empty_pages(head_dim), weights(head_dim)
    q, k, v = parts(c, head_dim)
    cos, sin = c.cos[c.positions], c.sin[c.positions]
    keys = rope.rotate(rmsnorm_bits(k, k_weight, EPS), cos, sin)
    append(pages, keys, v, c.slots, c.kv_format)
    queries = rope.rotate(rmsnorm_bits(q, q_weight, EPS), cos, sin)
    return queries.reshape(len(c.qkv), NUM_HEADS * head_dim), pages


def stepped(
    isa: Isa,
    c: Case,
    head_dim: int,
    num_workers: int = 1,
    before: bool = False,
    in_place: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Queries and pages; `in_place`, whole rows instead of queries."""
    place = guarded_before if before else guarded
    qkv = place(c.qkv)
    q = qkv if in_place else place(np.full((len(c.qkv), NUM_HEADS * head_dim), -1, np.float32))
    pages = place(empty_pages(head_dim))
    q_weight, k_weight = weights(head_dim)
    operands = (
        place(np.array([len(c.qkv)])), qkv, c.qkv.shape[1], place(c.positions),
        place(c.cos), place(c.sin), place(c.slots), q, q.shape[1], pages,
        NUM_HEADS, NUM_KV_HEADS, place(q_weight), place(k_weight), EPS,
        place(c.query_scale),
    )  # fmt: skip
    run(compiled(norm_rope_append, isa, **c.constants(head_dim)), operands, num_workers)
    return q, pages


@each_isa
@pytest.mark.parametrize("head_dim", [2, 16, 40, 64, 80, 128])
@pytest.mark.parametrize("num_rows", [0, 1, 35])
def test_heads_are_normalised_turned_and_kept(isa: Isa, head_dim: int, num_rows: int) -> None:
    c = case(num_rows, head_dim)
    expected_q, expected_pages = expected_of(c, head_dim)

    q, pages = stepped(isa, c, head_dim)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


@pytest.mark.parametrize("head_dim", [2, 16, 40, 64, 80])
def test_queries_may_turn_where_they_lie(head_dim: int) -> None:
    c = case(35, head_dim)
    expected_q, expected_pages = expected_of(c, head_dim)

    rows, pages = stepped(AVX2, c, head_dim, 3, in_place=True)

    same_bits(rows[:, : NUM_HEADS * head_dim], expected_q)
    assert np.array_equal(pages, expected_pages)


@pytest.mark.parametrize("num_workers", [2, 3, 7])
def test_the_number_of_workers_changes_nothing(num_workers: int) -> None:
    c = case(5, 64)
    expected_q, expected_pages = stepped(AVX2, c, 64)

    q, pages = stepped(AVX2, c, 64, num_workers, before=True)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


def test_the_norm_is_that_of_the_formula() -> None:
    c = case(3, 64)
    c.positions[:] = 0
    q, _, _ = parts(c, 64)

    found, _ = stepped(AVX2, c, 64)

    exact = rmsnorm(q, weights(64)[0], EPS).reshape(3, -1)
    # 64 squares added in float32 and a division: some 2^-23 of values below 8.
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5)


def test_a_head_that_is_not_finite_spoils_no_other() -> None:
    c = case(2, 64)
    expected, _ = stepped(AVX2, c, 64)
    c.qkv[0, 5] = np.nan

    found, _ = stepped(AVX2, c, 64)

    assert np.isnan(found[0, :64]).all()
    same_bits(found.reshape(-1, 64)[1:], expected.reshape(-1, 64)[1:])


def test_neon_code_is_emitted() -> None:
    code = norm_rope_append.specialise(head_dim=64)

    assert f"{code.symbol}:" in code.show("asm", NEON)
