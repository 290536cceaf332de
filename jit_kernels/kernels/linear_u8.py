"""Linear, u8 weights: out = sum over groups of (dot * a_scale) * w_scale + a_sum * w_minimum.

A word holds four weights of one column. They meet activations of 16 bits ("i16") as two pairs of
int16, its even bytes and its odd ones, and activations of 7 bits ("i7") as they are: 8 bits would
saturate where two products are added in 16. What a group does, and in which order, is
`linear_groups`'s.
"""

from __future__ import annotations

from jit_kernels.kernel import kernel
from jit_kernels.kernels.linear_groups import GroupedOperands, multiply_groups
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE
from jit_kernels.kernels.linear_tiles import U8_BY_I7, U8_BY_I16

__all__ = ["linear_u8"]


@kernel
def linear_u8(
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
    """Multiply rows prepared as `form` by u8 panels."""
    multiply_groups(
        U8_BY_I16 if form == "i16" else U8_BY_I7,
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
