"""x + rmsnorm(h) -> norm_add(h, x): models that normalise what a block adds (Gemma Team 2024)."""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.lower.ops import Op, consumers, maker, replaced

__all__ = ["fuse_post_norm"]


def fuse_post_norm(ops: Sequence[Op]) -> list[Op]:
    """Fuse every sum of which one side is a norm that nothing else reads."""
    result = list(ops)
    for add in [op for op in ops if op.kind == "add"]:
        for normed, residual in (add.inputs, add.inputs[::-1]):
            norm = maker(result, normed)
            if norm is None or norm.kind != "rmsnorm" or len(consumers(result, normed)) > 1:
                continue
            inputs = (norm.inputs[0], residual)
            fused = Op("norm_add", norm.name, inputs, add.outputs, norm.attributes, norm.layer)
            result = replaced(result, [norm, add], fused)
            break
    return result
