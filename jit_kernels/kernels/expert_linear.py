"""Experts' linear layers: out[s] = x[row of s] @ W[expert of s], pairs s sorted by expert.

Rows are prepared one after the other, whatever their number; weights are panels as `linear` reads
them, the experts' one after the other (Shazeer et al. 2017; Gale et al. 2022, MegaBlocks).
"""

from __future__ import annotations

from typing import NamedTuple

from jit_kernels.dsl import Array, Value, index
from jit_kernels.dsl.trace import current
from jit_kernels.kernel import kernel
from jit_kernels.kernels.expert_blocks import ExpertRows, multiply_experts
from jit_kernels.kernels.linear_float import FloatWeights, float_weights
from jit_kernels.kernels.linear_groups import GroupedWeights, grouped_weights
from jit_kernels.kernels.linear_operands import Destination, Product, Scratch, padded_steps
from jit_kernels.kernels.linear_schedule import Schedule
from jit_kernels.kernels.linear_tiles import (
    BF16_PAIRS,
    F32_WORDS,
    U4_BY_I8,
    U4_BY_I16,
    U8_BY_I7,
    U8_BY_I16,
    Arithmetic,
)
from jit_kernels.types import F32, I32, I64, U8, U16, U32

__all__ = ["expert_linear_bf16", "expert_linear_f32", "expert_linear_u4", "expert_linear_u8"]


class _FloatOperands(NamedTuple):
    """Operands with float weights; `num_panels` are those of one expert."""

    num_pairs: Array[I64]
    experts: Array[I64]
    token_rows: Array[I32]
    activations: Array[F32]
    panels: Array[U32]
    out: Array[F32]
    out_stride: Value[I64]
    in_features: Value[I64]
    num_panels: Value[I64]
    counter: Array[I64]
    workspace: Array[U8]
    workspace_bytes: Value[I64]


class _GroupedOperands(NamedTuple):
    """Operands with grouped weights; `num_panels` are those of one expert."""

    num_pairs: Array[I64]
    experts: Array[I64]
    token_rows: Array[I32]
    activations: Array[U8]
    activation_scales: Array[F32]
    panels: Array[U8]
    scale: Array[U16]
    minimum: Array[U16]
    out: Array[F32]
    out_stride: Value[I64]
    in_features: Value[I64]
    num_panels: Value[I64]
    groups_per_scale: Value[I64]
    counter: Array[I64]
    workspace: Array[U8]
    workspace_bytes: Value[I64]


def _multiply(
    given: _FloatOperands | _GroupedOperands,
    weights: FloatWeights | GroupedWeights,
    *,
    gather: bool,
) -> None:
    """Without `gather`, pair s reads row s."""
    pairs = ExpertRows(given.num_pairs[1], given.experts, given.token_rows if gather else None)
    product = Product(
        num_rows=pairs.num_active,
        activations=given.activations.view(U32),
        row_steps=padded_steps(given.in_features, weights.arithmetic.elements),
        num_words=weights.num_words,
        num_panels=given.num_panels,
        counter=given.counter,
        scratch=Scratch.of_worker(given.workspace, given.workspace_bytes),
        destination=Destination(given.out, given.out_stride, None, None, index(0)),
        row_tile=0,
        schedule=Schedule.default(current().isa),
    )
    multiply_experts(product, weights, pairs)


def _grouped(
    arithmetic: Arithmetic, given: _GroupedOperands, group: int, scale_format: str
) -> GroupedWeights:
    return grouped_weights(
        arithmetic,
        given.panels,
        (given.scale, given.minimum),
        given.activation_scales,
        given.in_features,
        given.groups_per_scale,
        group=group,
        scale_format=scale_format,
    )


@kernel
def expert_linear_f32(given: _FloatOperands, *, gather: bool) -> None:
    """Multiply by float32 panels."""
    _multiply(given, float_weights(F32_WORDS, given.panels, given.in_features), gather=gather)


@kernel
def expert_linear_bf16(given: _FloatOperands, *, gather: bool) -> None:
    """Multiply by bfloat16 panels."""
    _multiply(given, float_weights(BF16_PAIRS, given.panels, given.in_features), gather=gather)


@kernel
def expert_linear_u8(
    given: _GroupedOperands, *, gather: bool, form: str, group: int, scale_format: str
) -> None:
    """Multiply rows prepared as `form` by u8 panels."""
    arithmetic = U8_BY_I16 if form == "i16" else U8_BY_I7
    _multiply(given, _grouped(arithmetic, given, group, scale_format), gather=gather)


@kernel
def expert_linear_u4(
    given: _GroupedOperands, *, gather: bool, form: str, group: int, scale_format: str
) -> None:
    """Multiply rows prepared as `form` by u4 panels."""
    arithmetic = U4_BY_I16 if form == "i16" else U4_BY_I8
    _multiply(given, _grouped(arithmetic, given, group, scale_format), gather=gather)
