"""silu(gate) * up -> swiglu(gate, up)   (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.lower.ops import Op, consumers, replaced

__all__ = ["fuse_swiglu"]


def fuse_swiglu(ops: Sequence[Op]) -> list[Op]:
    """Fuse every product of which one side is a Swish that nothing else reads."""
    result = list(ops)
    for product in [op for op in ops if op.kind == "multiply"]:
        for activated, up in (product.inputs, product.inputs[::-1]):
            swish = next((op for op in result if activated in op.outputs), None)
            if swish is None or swish.kind != "swish" or len(consumers(result, activated)) > 1:
                continue
            inputs = (swish.inputs[0], up)
            fused = Op("swiglu", product.name, inputs, product.outputs, {}, product.layer)
            result = replaced(result, [swish, product], fused)
            break
    return result
