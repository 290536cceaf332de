"""Experts' linear layers: out[s] = x[row of s] @ W[expert of s], pairs s sorted by expert.

Rows are prepared one after the other, whatever their number; weights are panels as `linear` reads
them, the experts' one after the other (Shazeer et al. 2017; Gale et al. 2022, MegaBlocks).
"""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, index
from jit_kernels.dsl.trace import current
from jit_kernels.kernel import kernel
from jit_kernels.kernels.expert_blocks import ExpertRows, multiply_experts
from jit_kernels.kernels.linear_float import FloatWeights
from jit_kernels.kernels.linear_groups import grouped_weights
from jit_kernels.kernels.linear_operands import (
    Destination,
    Product,
    Scratch,
    Weights,
    padded_steps,
)
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


def _multiply(
    weights: Weights,
    num_words: Value[I64],
    pairs: ExpertRows,
    activations: Array[U32],
    row_steps: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
    num_panels: Value[I64],
    counter: Array[I64],
    scratch: Scratch,
) -> None:
    product = Product(
        num_rows=pairs.num_active,
        activations=activations,
        row_steps=row_steps,
        num_words=num_words,
        num_panels=num_panels,
        counter=counter,
        scratch=scratch,
        destination=Destination(out, out_stride, None, None, index(0)),
        tile_rows=0,
        schedule=Schedule.default(current().isa),
    )
    multiply_experts(product, weights, pairs)


def _multiply_float(
    arithmetic: Arithmetic,
    panels: Array[U32],
    pairs: ExpertRows,
    activations: Array[F32],
    out: Array[F32],
    out_stride: Value[I64],
    in_features: Value[I64],
    num_panels: Value[I64],
    counter: Array[I64],
    scratch: Scratch,
) -> None:
    num_words = (in_features + (arithmetic.steps - 1)) // arithmetic.steps
    _multiply(
        FloatWeights(arithmetic, panels, num_words),
        num_words,
        pairs,
        activations.view(U32),
        padded_steps(in_features, 1),
        out,
        out_stride,
        num_panels,
        counter,
        scratch,
    )


@kernel
def expert_linear_f32(
    num_pairs: Array[I64],
    experts: Array[I64],
    token_rows: Array[I32],
    activations: Array[F32],
    panels: Array[F32],
    out: Array[F32],
    out_stride: Value[I64],
    in_features: Value[I64],
    num_panels: Value[I64],
    counter: Array[I64],
    workspace: Array[U8],
    workspace_bytes: Value[I64],
    *,
    gather: bool,
) -> None:
    """float32 panels, `num_panels` an expert; without `gather`, pair s reads row s."""
    pairs = ExpertRows(num_pairs[1], experts, token_rows if gather else None)
    scratch = Scratch.of_worker(workspace, workspace_bytes)
    _multiply_float(
        F32_WORDS, panels.view(U32), pairs, activations, out, out_stride, in_features, num_panels,
        counter, scratch,
    )  # fmt: skip


@kernel
def expert_linear_bf16(
    num_pairs: Array[I64],
    experts: Array[I64],
    token_rows: Array[I32],
    activations: Array[F32],
    panels: Array[U16],
    out: Array[F32],
    out_stride: Value[I64],
    in_features: Value[I64],
    num_panels: Value[I64],
    counter: Array[I64],
    workspace: Array[U8],
    workspace_bytes: Value[I64],
    *,
    gather: bool,
) -> None:
    """bfloat16 panels, `num_panels` an expert; without `gather`, pair s reads row s."""
    pairs = ExpertRows(num_pairs[1], experts, token_rows if gather else None)
    scratch = Scratch.of_worker(workspace, workspace_bytes)
    _multiply_float(
        BF16_PAIRS, panels.view(U32), pairs, activations, out, out_stride, in_features, num_panels,
        counter, scratch,
    )  # fmt: skip


@kernel
def expert_linear_u8(
    num_pairs: Array[I64],
    experts: Array[I64],
    token_rows: Array[I32],
    activations: Array[U8],
    activation_scales: Array[F32],
    panels: Array[U8],
    scale: Array[U16],
    minimum: Array[U16],
    out: Array[F32],
    out_stride: Value[I64],
    in_features: Value[I64],
    num_panels: Value[I64],
    groups_per_scale: Value[I64],
    counter: Array[I64],
    workspace: Array[U8],
    workspace_bytes: Value[I64],
    *,
    gather: bool,
    form: str,
    group: int,
    scale_format: str,
) -> None:
    """u8 panels, `num_panels` an expert; without `gather`, pair s reads row s."""
    weights = grouped_weights(
        U8_BY_I16 if form == "i16" else U8_BY_I7, panels, (scale, minimum), activation_scales,
        in_features, groups_per_scale, group=group, scale_format=scale_format,
    )  # fmt: skip
    _multiply(
        weights,
        weights.num_words,
        ExpertRows(num_pairs[1], experts, token_rows if gather else None),
        activations.view(U32),
        padded_steps(in_features, weights.arithmetic.elements),
        out,
        out_stride,
        num_panels,
        counter,
        Scratch.of_worker(workspace, workspace_bytes),
    )


@kernel
def expert_linear_u4(
    num_pairs: Array[I64],
    experts: Array[I64],
    token_rows: Array[I32],
    activations: Array[U8],
    activation_scales: Array[F32],
    panels: Array[U8],
    scale: Array[U16],
    minimum: Array[U16],
    out: Array[F32],
    out_stride: Value[I64],
    in_features: Value[I64],
    num_panels: Value[I64],
    groups_per_scale: Value[I64],
    counter: Array[I64],
    workspace: Array[U8],
    workspace_bytes: Value[I64],
    *,
    gather: bool,
    form: str,
    group: int,
    scale_format: str,
) -> None:
    """u4 panels, `num_panels` an expert; without `gather`, pair s reads row s."""
    weights = grouped_weights(
        U4_BY_I16 if form == "i16" else U4_BY_I8, panels, (scale, minimum), activation_scales,
        in_features, groups_per_scale, group=group, scale_format=scale_format,
    )  # fmt: skip
    _multiply(
        weights,
        weights.num_words,
        ExpertRows(num_pairs[1], experts, token_rows if gather else None),
        activations.view(U32),
        padded_steps(in_features, weights.arithmetic.elements),
        out,
        out_stride,
        num_panels,
        counter,
        Scratch.of_worker(workspace, workspace_bytes),
    )
