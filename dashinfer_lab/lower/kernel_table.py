"""Kernels by the names that plans use; the only place where `lower` meets their modules."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jit_kernels.kernel import Kernel

__all__ = ["kernel_table", "workspace_bytes"]


@lru_cache(maxsize=1)
def kernel_table() -> dict[str, Kernel]:
    """Every kernel a plan may name."""
    from jit_kernels.kernels.advance import advance
    from jit_kernels.kernels.attention import attention
    from jit_kernels.kernels.attention_merge import attention_merge
    from jit_kernels.kernels.combine_experts import combine_experts
    from jit_kernels.kernels.embedding import embedding
    from jit_kernels.kernels.expert_linear import (
        expert_linear_bf16,
        expert_linear_f32,
        expert_linear_u4,
        expert_linear_u8,
    )
    from jit_kernels.kernels.gather_rows import gather_rows
    from jit_kernels.kernels.geglu import geglu_prepare
    from jit_kernels.kernels.linear_float import linear_bf16, linear_f32
    from jit_kernels.kernels.linear_u4 import linear_u4
    from jit_kernels.kernels.linear_u8 import linear_u8
    from jit_kernels.kernels.norm_rope_append import norm_rope_append
    from jit_kernels.kernels.prepare import prepare
    from jit_kernels.kernels.rmsnorm import rmsnorm, rmsnorm_prepare
    from jit_kernels.kernels.rmsnorm_add import rmsnorm_add
    from jit_kernels.kernels.rope_append import rope_append
    from jit_kernels.kernels.route import group_rows, route
    from jit_kernels.kernels.sample import sample
    from jit_kernels.kernels.softcap import softcap
    from jit_kernels.kernels.swiglu import swiglu_prepare

    kernels = (
        advance,
        attention,
        attention_merge,
        combine_experts,
        embedding,
        expert_linear_bf16,
        expert_linear_f32,
        expert_linear_u4,
        expert_linear_u8,
        gather_rows,
        geglu_prepare,
        group_rows,
        linear_bf16,
        linear_f32,
        linear_u4,
        linear_u8,
        norm_rope_append,
        prepare,
        rmsnorm,
        rmsnorm_add,
        rmsnorm_prepare,
        rope_append,
        route,
        sample,
        softcap,
        swiglu_prepare,
    )
    return {kernel.name: kernel for kernel in kernels}


def workspace_bytes(head_dim: int, heads_per_kv: int, vocab_size: int) -> int:
    """Scratch that one worker needs for the largest of a model's kernels, in whole pages."""
    from jit_kernels.kernels.attention import workspace_floats
    from jit_kernels.kernels.linear_blocks import WORKSPACE_BYTES
    from jit_kernels.kernels.sample import sample_workspace_bytes

    largest = max(
        WORKSPACE_BYTES,
        4 * workspace_floats(head_dim, heads_per_kv),
        sample_workspace_bytes(vocab_size),
    )
    return -(-largest // 4096) * 4096
