"""GeGLU: y = gelu(gate) · up, gelu(g) = g · (1 + tanh(√(2/π) (g + 0.044715 g³))) / 2.

Source: Shazeer 2020, eq. 5, with the form of gelu by tanh (Hendrycks & Gimpel 2016).

(1 + tanh(u)) / 2 is sigmoid(2u), which keeps small values exact to a rounding.
"""

from __future__ import annotations

from jit_kernels.kernel import kernel
from jit_kernels.kernels.activations import gelu
from jit_kernels.kernels.gated import GatedOperands
from jit_kernels.kernels.prepare import PreparedOperands

__all__ = ["geglu_prepare"]


@kernel
def geglu_prepare(
    gated: GatedOperands,
    prepared: PreparedOperands,
    *,
    form: str,
    group: int,
    row_tile: int,
    by_product: str = "",
) -> None:
    """Prepare gelu(gate) · up of [R, n] rows for a linear; `by_product`: see `GatedOperands`."""
    gated.prepare(prepared.rows(form, group, row_tile), gelu, by_product=by_product)
