"""Embedding: the columns of a packed weight, in every format and share of the work."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import Isa
from jit_kernels.kernels.embedding import embedding
from jit_kernels.panels import pack_bf16, pack_f32, pack_groups, pack_u8, to_bf16
from jit_kernels.reference.embedding import embedding_bf16, embedding_f32, embedding_u8
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import compiled, each_isa, run, same_bits

VOCAB = 37
TOKENS = np.array([36, 0, 15, 16, 16, 31, 32], np.int32)
NOTHING = np.zeros(0, np.uint8)


def gathered(
    isa: Isa,
    panels: np.ndarray,
    n: int,
    weight_format: str,
    scale: np.ndarray = NOTHING,
    minimum: np.ndarray = NOTHING,
    group_size: int = 1,
    num_workers: int = 1,
    multiplier: float = 1.0,
) -> np.ndarray:
    out = guarded(np.full((len(TOKENS), n), -1, np.float32))
    scale_format = "f16" if scale.dtype == np.float16 else "f32"
    code = compiled(embedding, isa, weight_format=weight_format, scale_format=scale_format)
    operands = (
        guarded(np.array([len(TOKENS)])), guarded(TOKENS), guarded(panels), guarded(scale),
        guarded(minimum), group_size, out, n, n, multiplier,
    )  # fmt: skip
    run(code, operands, num_workers)
    return out


@each_isa
@pytest.mark.parametrize("n", [1, 7, 31, 32, 33, 130])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_float_columns_come_back_as_they_were(isa: Isa, n: int, num_workers: int) -> None:
    weight = np.random.default_rng(n).standard_normal((VOCAB, n)).astype(np.float32)

    actual = gathered(isa, pack_f32(weight), n, "f32", num_workers=num_workers)

    same_bits(actual, weight[TOKENS])
    same_bits(actual, embedding_f32(TOKENS, pack_f32(weight)))


@each_isa
@pytest.mark.parametrize("n", [1, 7, 32, 33, 130])
def test_bf16_columns_are_widened(isa: Isa, n: int) -> None:
    weight = np.random.default_rng(n).standard_normal((VOCAB, n)).astype(np.float32)
    panels = pack_bf16(to_bf16(weight))

    same_bits(gathered(isa, panels, n, "bf16", num_workers=2), embedding_bf16(TOKENS, panels, n))


@each_isa
@pytest.mark.parametrize("scale_dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    ("n", "group_size"), [(7, 64), (32, 32), (33, 32), (200, 64), (200, 128), (45, 45), (131, 131)]
)
def test_u8_columns_are_dequantised(
    isa: Isa, n: int, group_size: int, scale_dtype: type[np.floating]
) -> None:
    rng = np.random.default_rng(n)
    panels = pack_u8(rng.integers(0, 256, (VOCAB, n), np.uint8))
    groups = (2, VOCAB, -(-n // group_size))
    scale, minimum = (pack_groups(g.astype(scale_dtype)) for g in rng.standard_normal(groups))
    expected = embedding_u8(TOKENS, panels, scale, minimum, group_size, n)

    actual = gathered(isa, panels, n, "u8", scale, minimum, group_size, num_workers=3)

    same_bits(actual, expected)


@each_isa
def test_every_element_is_multiplied_once(isa: Isa) -> None:
    weight = np.random.default_rng(3).standard_normal((VOCAB, 37)).astype(np.float32)
    factor = np.float32(37**0.5)

    actual = gathered(isa, pack_f32(weight), 37, "f32", multiplier=float(factor))

    same_bits(actual, weight[TOKENS] * factor)


def test_the_u8_reference_is_q_times_scale_plus_minimum() -> None:
    q = np.arange(VOCAB * 8, dtype=np.uint8).reshape(VOCAB, 8)
    scale = np.full((VOCAB, 2), 0.5, np.float32)
    minimum = np.full((VOCAB, 2), -3, np.float32)

    actual = embedding_u8(TOKENS, pack_u8(q), pack_groups(scale), pack_groups(minimum), 4, 8)

    same_bits(actual, q[TOKENS].astype(np.float32) * np.float32(0.5) - np.float32(3))
