"""QK-norm and RoPE: rope(x / sqrt(mean(x²) + eps) · weight), head by head   (Henry et al. 2020).

As `rope_append`, with every head of q and k normalised before it turns; v stays as it is.
"""

from __future__ import annotations

from jit_kernels.dsl import Array, Value, running_sum, sqrt, vectorized
from jit_kernels.kernel import kernel
from jit_kernels.kernels.kv_pages import Layout
from jit_kernels.kernels.rope_append import Head, HeadOperands, append_heads
from jit_kernels.types import F32

__all__ = ["norm_rope_append"]


@kernel
def norm_rope_append(
    heads: HeadOperands,
    q_weight: Array[F32],
    k_weight: Array[F32],
    eps: Value[F32],
    query_scale: Array[F32],
    *,
    head_dim: int,
    turned: bool = True,
    scaled: bool = False,
    kv_format: str = "fp32",
) -> None:
    """Normalise and rotate; `q_weight` and `k_weight` are [head_dim], the rest as `rope_append`."""

    def head_of(head: Array[F32], is_query: bool) -> Head:
        weight = q_weight if is_query else k_weight
        square_sum = running_sum()
        for d in vectorized(head_dim):
            square_sum.add_product(head[d], head[d])
        factor = 1.0 / sqrt(square_sum.value() / float(head_dim) + eps)
        return lambda d: head[d] * factor * weight[d]

    scale = query_scale if scaled else None
    append_heads(heads, Layout(kv_format, head_dim), head_of, turned=turned, scale=scale)
