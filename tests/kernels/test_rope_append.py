"""RoPE and the cache: rotated heads, and pages of which only the given slots change."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from jit_kernels.isa import AVX2, NEON, Isa
from jit_kernels.kernel import Constant
from jit_kernels.kernels.rope_append import rope_append
from jit_kernels.kv_layout import KvFormat, block_bytes
from jit_kernels.reference import kv_cache
from jit_kernels.reference import rope as reference
from jit_kernels.reference.kv_cache import stored_keys, stored_values
from tests.kernels.guarded import guarded, guarded_before
from tests.kernels.machine_code import compiled, each_isa, run, same_bits

NUM_HEADS, NUM_KV_HEADS, NUM_PAGES, NUM_POSITIONS = 3, 2, 3, 70


@dataclass(frozen=True, slots=True)
class Case:
    """Operands of one step."""

    qkv: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    cos: np.ndarray
    sin: np.ndarray
    query_scale: np.ndarray
    turned: bool = True
    scaled: bool = False
    kv_format: KvFormat = "fp32"

    def constants(self, head_dim: int) -> dict[str, Constant]:
        """What the kernel is specialised by."""
        own = {"turned": self.turned, "scaled": self.scaled, "kv_format": self.kv_format}
        return {"head_dim": head_dim, **own}


def case(num_rows: int, head_dim: int) -> Case:
    rng = np.random.default_rng(num_rows * head_dim)
    width = (NUM_HEADS + 2 * NUM_KV_HEADS) * head_dim
    angles = np.outer(np.arange(NUM_POSITIONS), 0.3 ** np.arange(head_dim // 2))
    return Case(
        rng.standard_normal((num_rows, width)).astype(np.float32),
        rng.integers(0, NUM_POSITIONS, num_rows).astype(np.int32),
        rng.permutation(NUM_PAGES * 32)[:num_rows],
        np.cos(angles).astype(np.float32),
        np.sin(angles).astype(np.float32),
        rng.uniform(1, 2, NUM_POSITIONS).astype(np.float32),
    )


def empty_pages(head_dim: int, kv_format: str = "fp32") -> np.ndarray:
    """Pages as garbage leaves them: all bits set."""
    return np.full((NUM_PAGES, NUM_KV_HEADS, block_bytes(kv_format, head_dim)), 0xFF, np.uint8)


def append(
    pages: np.ndarray, keys: np.ndarray, values: np.ndarray, slots: np.ndarray, kv_format: str
) -> None:
    """Write k, v [R, KV, D] to their slots."""
    kept = stored_keys(keys, kv_format), stored_values(values, kv_format)
    kv_cache.append(pages, kv_format, *kept, slots)


def expected_of(c: Case, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    num_rows, pages = len(c.qkv), empty_pages(head_dim, c.kv_format)
    q, k, v = np.split(
        c.qkv.reshape(num_rows, NUM_HEADS + 2 * NUM_KV_HEADS, head_dim),
        [NUM_HEADS, NUM_HEADS + NUM_KV_HEADS],
        1,
    )
    cos, sin = c.cos[c.positions], c.sin[c.positions]
    if c.turned:
        q, k = (reference.rotate(each, cos, sin) for each in (q, k))
    append(pages, k, v, c.slots, c.kv_format)
    if c.scaled:
        q = q * c.query_scale[c.positions, None, None]
    return q.reshape(num_rows, NUM_HEADS * head_dim), pages


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
    pages = place(empty_pages(head_dim, c.kv_format))
    operands = (
        place(np.array([len(c.qkv)])), qkv, c.qkv.shape[1], place(c.positions),
        place(c.cos), place(c.sin), place(c.slots), q, q.shape[1], pages,
        NUM_HEADS, NUM_KV_HEADS, place(c.query_scale),
    )  # fmt: skip
    run(compiled(rope_append, isa, **c.constants(head_dim)), operands, num_workers)
    return q, pages


@each_isa
@pytest.mark.parametrize("head_dim", [2, 16, 40, 64, 80, 128])
@pytest.mark.parametrize("num_rows", [0, 1, 35])
def test_heads_are_rotated_and_kept_where_asked(isa: Isa, head_dim: int, num_rows: int) -> None:
    c = case(num_rows, head_dim)
    expected_q, expected_pages = expected_of(c, head_dim)

    q, pages = stepped(isa, c, head_dim)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


@each_isa
@pytest.mark.parametrize("kv_format", ["bf16", "int8"])
@pytest.mark.parametrize("head_dim", [16, 40, 64])
def test_keys_and_values_are_rounded_to_their_format(
    isa: Isa, head_dim: int, kv_format: KvFormat
) -> None:
    c = replace(case(35, head_dim), kv_format=kv_format)
    width = NUM_HEADS + 2 * NUM_KV_HEADS
    c.qkv.reshape(35, width, head_dim)[3, -1] = 0  # a value of nothing has nothing to scale by
    c.qkv.reshape(35, width, head_dim)[4, -2] = 1e-40
    c.qkv.reshape(35, width, head_dim)[5, 3] *= 2e-37  # 2047 times its inverse is not finite
    expected_q, expected_pages = expected_of(c, head_dim)

    q, pages = stepped(isa, c, head_dim)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


@pytest.mark.parametrize("head_dim", [16, 40])
def test_heads_may_stay_as_they_are(head_dim: int) -> None:
    c = replace(case(35, head_dim), turned=False)
    expected_q, expected_pages = expected_of(c, head_dim)

    q, pages = stepped(AVX2, c, head_dim)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


@pytest.mark.parametrize("head_dim", [16, 40, 64])
def test_queries_alone_are_scaled_by_their_position(head_dim: int) -> None:
    c = replace(case(35, head_dim), scaled=True)
    expected_q, expected_pages = expected_of(c, head_dim)

    q, pages = stepped(AVX2, c, head_dim)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("head_dim", [2, 16, 40, 64, 80])
@pytest.mark.parametrize("scaled", [False, True])
def test_queries_may_turn_where_they_lie(head_dim: int, num_workers: int, scaled: bool) -> None:
    c = replace(case(35, head_dim), scaled=scaled)
    expected_q, expected_pages = expected_of(c, head_dim)
    others = c.qkv[:, NUM_HEADS * head_dim :].copy()

    rows, pages = stepped(AVX2, c, head_dim, num_workers, in_place=True)

    same_bits(rows[:, : NUM_HEADS * head_dim], expected_q)
    same_bits(rows[:, NUM_HEADS * head_dim :], others)
    assert np.array_equal(pages, expected_pages)


@pytest.mark.parametrize("num_workers", [2, 3, 7])
def test_the_number_of_workers_changes_nothing(num_workers: int) -> None:
    c = case(5, 64)
    expected_q, expected_pages = stepped(AVX2, c, 64)

    q, pages = stepped(AVX2, c, 64, num_workers, before=True)

    same_bits(q, expected_q)
    assert np.array_equal(pages, expected_pages)


def test_the_reference_is_a_rotation_of_the_plane() -> None:
    angle = 0.7
    x = np.array([[[3, 4]]], np.float32)

    rotated = reference.rotate(x, np.float32([[np.cos(angle)]]), np.float32([[np.sin(angle)]]))

    exact = (3 + 4j) * np.exp(1j * angle)
    # cos and sin are rounded by 2^-25, the inner product by 2^-23, the result by 2^-23.
    np.testing.assert_allclose(rotated[0, 0], [exact.real, exact.imag], rtol=0, atol=2e-6)


def test_position_zero_changes_nothing() -> None:
    c = case(1, 64)
    c.positions[:] = 0

    q, _ = stepped(AVX2, c, 64)

    assert np.array_equal(q[0], c.qkv[0, : NUM_HEADS * 64])


def test_neon_code_is_emitted() -> None:
    code = rope_append.specialise(head_dim=64)

    assert f"{code.symbol}:" in code.show("asm", NEON)
