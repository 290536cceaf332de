"""SwiGLU: y = silu(gate) · up, silu(g) = g · sigmoid(g)   (Shazeer 2020, eq. 6)."""

from __future__ import annotations

from jit_kernels.kernel import kernel
from jit_kernels.kernels.activations import silu
from jit_kernels.kernels.gated import GatedOperands
from jit_kernels.kernels.prepare import PreparedOperands

__all__ = ["swiglu_prepare"]


@kernel
def swiglu_prepare(
    gated: GatedOperands,
    prepared: PreparedOperands,
    *,
    form: str,
    group: int,
    row_tile: int,
    by_product: str = "",
) -> None:
    """Prepare silu(gate) · up of [R, n] rows for a linear; `by_product`: see `GatedOperands`."""
    gated.prepare(prepared.rows(form, group, row_tile), silu, by_product=by_product)
