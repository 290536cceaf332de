"""Groups quantised by kernels: the bits of the NumPy body and of the packing, from every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jit_kernels.isa import Isa
from jit_kernels.kernels.quantize import SOURCES, group_codes, group_extremes
from jit_kernels.panels import from_bf16, num_panels, num_words, pack_u4, pack_u8, to_bf16
from jit_kernels.reference import quantize as reference
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import compiled, each_isa, run, same_bits

Array = np.ndarray[Any, Any]


def weights_of(n: int, k: int, source: str) -> tuple[Array, Array]:
    """Random weights as stored, and the same in float32."""
    values = (np.random.default_rng(n * k).standard_normal((n, k)) * 0.03).astype(np.float32)
    if source == "bf16":
        return to_bf16(values), from_bf16(to_bf16(values))
    stored = values.astype(np.float16) if source == "f16" else values
    return stored, stored.astype(np.float32)


def extremes(isa: Isa, stored: Array, source: str, length: int) -> tuple[Array, Array]:
    n, k = stored.shape
    low, high = (guarded(np.zeros((n, -(-k // length)), np.float32)) for _ in range(2))
    operands = (n, guarded(stored), k, length, low, high)
    run(compiled(group_extremes, isa, source=source), operands, num_workers=3)
    return low, high


@each_isa
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("n", "k", "length"), [(1, 1, 64), (19, 133, 32), (5, 200, 200)])
def test_extremes_are_those_of_numpy(isa: Isa, source: str, n: int, k: int, length: int) -> None:
    stored, values = weights_of(n, k, source)

    found = extremes(isa, stored, source, length)

    for actual, expected in zip(found, reference.group_extremes(values, length), strict=True):
        same_bits(actual, expected)


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_shows_in_both_extremes(isa: Isa, bad: float) -> None:
    stored, _ = weights_of(3, 100, "f32")
    stored[1, 70] = bad

    low, high = extremes(isa, stored, "f32", 64)

    assert np.argwhere(np.isnan(low)).tolist() == [[1, 1]]
    assert np.argwhere(np.isnan(high)).tolist() == [[1, 1]]


@each_isa
def test_zeros_have_one_sign(isa: Isa) -> None:
    zeros = np.array([[-0.0] * 20, [0.0, -0.0] * 10], np.float32)

    for actual, expected in zip(
        extremes(isa, zeros, "f32", 64), reference.group_extremes(zeros, 64), strict=True
    ):
        same_bits(actual, np.zeros((2, 1), np.float32))
        same_bits(expected, np.zeros((2, 1), np.float32))


@each_isa
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("n", "k", "length"), [(1, 1, 64), (35, 133, 32), (16, 200, 200)])
def test_codes_are_packed_as_numpy_packs_them(
    isa: Isa, bits: int, source: str, n: int, k: int, length: int
) -> None:
    stored, values = weights_of(n, k, source)
    low, high = reference.group_extremes(values, length)
    most = 2**bits - 1
    scale = ((high - low) / np.float32(most) * np.float32(0.9)).astype(np.float32)  # clips some
    panels = guarded(np.full((num_panels(n), num_words(k, bits), 16, 4), 0xAA, np.uint8))
    operands = (n, guarded(stored), k, length, guarded(scale), guarded(low), panels)

    run(compiled(group_codes, isa, source=source, bits=bits), operands, num_workers=2)

    codes = reference.group_codes(values, length, scale, low, most)
    assert codes.max() == most or k == 1
    same_bits(panels, (pack_u8 if bits == 8 else pack_u4)(codes))
