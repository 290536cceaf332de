"""Linear, u4 weights: out = sum over groups of (dot * a_scale) * w_scale + a_sum * w_minimum.

A word holds eight weights of one column. They meet activations of 16 bits ("i16") as four pairs of
int16, the nibbles of its halves from the lowest, and activations of 8 bits ("i8") as two quads of
bytes, the lower nibbles and the upper ones. What a group does, and in which order, is
`linear_groups`'s.
"""

from __future__ import annotations

from jit_kernels.kernel import kernel
from jit_kernels.kernels.linear_groups import GroupedOperands, multiply_groups
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE
from jit_kernels.kernels.linear_tiles import U4_BY_I8, U4_BY_I16

__all__ = ["linear_u4"]


@kernel
def linear_u4(
    given: GroupedOperands,
    *,
    form: str,
    group: int,
    scale_format: str,
    has_bias: bool,
    has_residual: bool,
    row_tile: int,
    schedule: str = DEFAULT_SCHEDULE,
    gated: str = "",
    unit_form: str = "",
    unit_group: int = 0,
) -> None:
    """Multiply rows prepared as `form` by u4 panels."""
    multiply_groups(
        U4_BY_I16 if form == "i16" else U4_BY_I8,
        given,
        group=group,
        scale_format=scale_format,
        has_bias=has_bias,
        has_residual=has_residual,
        row_tile=row_tile,
        schedule=schedule,
        gated=gated,
        unit_form=unit_form,
        unit_group=unit_group,
    )
