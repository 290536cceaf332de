"""Linear, u4 weights: out = sum over groups of (dot * a_scale) * w_scale + a_sum * w_minimum.

A word holds eight weights of one column. They meet activations of 16 bits ("i16") as four pairs of
int16, the nibbles of its halves from the lowest, and activations of 8 bits ("i8") as two quads of
bytes, the lower nibbles and the upper ones. What a group does, and in which order, is
`linear_groups`'s.
"""

from __future__ import annotations

from jit_kernels.dsl import Array, Value
from jit_kernels.kernel import kernel
from jit_kernels.kernels.linear_groups import multiply_groups
from jit_kernels.kernels.linear_operands import Destination, Scratch
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE
from jit_kernels.kernels.linear_tiles import U4_BY_I8, U4_BY_I16
from jit_kernels.types import F32, I64, U8, U16

__all__ = ["linear_u4"]


@kernel
def linear_u4(
    rows: Array[I64],
    activations: Array[U8],
    activation_scales: Array[F32],
    copy_bytes: Value[I64],
    scales_copy_bytes: Value[I64],
    panels: Array[U8],
    scale: Array[U16],
    minimum: Array[U16],
    bias: Array[F32],
    residual: Array[F32],
    residual_stride: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
    in_features: Value[I64],
    num_panels: Value[I64],
    groups_per_scale: Value[I64],
    counter: Array[I64],
    workspace: Array[U8],
    workspace_bytes: Value[I64],
    *,
    form: str,
    group: int,
    scale_format: str,
    has_bias: bool,
    has_residual: bool,
    row_tile: int,
    schedule: str = DEFAULT_SCHEDULE,
) -> None:
    """Multiply rows prepared as `form` by u4 panels; writes 16 * num_panels columns a row.

    `scale` and `minimum` hold float16 or float32 elements, as `scale_format` says.
    """
    multiply_groups(
        U4_BY_I16 if form == "i16" else U4_BY_I8,
        rows,
        activations,
        activation_scales,
        (copy_bytes, scales_copy_bytes),
        panels,
        (scale, minimum),
        Destination.of(out, out_stride, bias, residual, residual_stride, has_bias, has_residual),
        in_features,
        num_panels,
        groups_per_scale,
        counter,
        Scratch.of_worker(workspace, workspace_bytes),
        group=group,
        scale_format=scale_format,
        row_tile=row_tile,
        schedule=schedule,
    )
