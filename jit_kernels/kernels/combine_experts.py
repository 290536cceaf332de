"""Experts' sum: out[r] = Σ_rank w[r, rank] · y[slot] + sigmoid(g[r]) · shared[r] + residual[r].

Shared expert and residual where there are any. Ranks in order, best first, one chain of fma from 0;
then the shared expert, then the residual (Shazeer et al. 2017, eq. 1; Qwen1.5-MoE, 2024).
"""

from __future__ import annotations

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    Variable,
    VectorIndex,
    fma,
    loop,
    minimum,
    sigmoid,
    zeros,
)
from jit_kernels.kernel import kernel, worker
from jit_kernels.types import F32, I32, I64

__all__ = ["combine_experts"]

_BLOCK = 8  # panels of a row that one worker takes


@kernel
def combine_experts(
    rows: Array[I64],
    expert_outputs: Array[F32],
    expert_stride: Value[I64],
    slots: Array[I32],
    expert_weights: Array[F32],
    top_k: Value[I64],
    shared: Array[F32],
    shared_stride: Value[I64],
    shared_gate: Array[F32],
    shared_gate_stride: Value[I64],
    residual: Array[F32],
    residual_stride: Value[I64],
    out: Array[F32],
    out_stride: Value[I64],
    num_panels: Value[I64],
    *,
    has_shared: bool,
    has_residual: bool,
) -> None:
    """Sum each row's pairs of `expert_outputs`; writes 16 * num_panels columns a row.

    `slots` and `expert_weights` are [R, top_k]; `out` may be `residual`.
    """
    blocks = (num_panels + (_BLOCK - 1)) // _BLOCK
    first, last = worker().share(rows[0] * blocks)
    for item in loop(first, last):
        row, block = item // blocks, item % blocks * _BLOCK
        gate = sigmoid(shared_gate.broadcast(row * shared_gate_stride)) if has_shared else None
        for panel in loop(block, minimum(block + _BLOCK, num_panels)):
            column = panel * VECTOR_LANES
            total = Variable(zeros(F32))
            for pair in loop(row * top_k, (row + 1) * top_k):
                place = slots[pair].to(I64) * expert_stride + column
                weight = expert_weights.broadcast(pair)
                total.set(fma(weight, expert_outputs.vector(place), total.get()))
            if gate is not None:
                total.set(fma(gate, shared.vector(row * shared_stride + column), total.get()))
            if has_residual:
                total.set(total.get() + residual.vector(row * residual_stride + column))
            out[VectorIndex(row * out_stride + column)] = total.get()
