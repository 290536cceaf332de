"""silu(gate) * up -> swiglu(gate, up), gelu(gate) * up -> geglu(gate, up)   (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.lower.ops import GATED_UNITS, Op, consumers, maker, replaced

__all__ = ["fuse_swiglu"]


def fuse_swiglu(ops: Sequence[Op]) -> list[Op]:
    """Fuse every product of which one side is an activation that nothing else reads."""
    result = list(ops)
    for product in [op for op in ops if op.kind == "multiply"]:
        for activated, up in (product.inputs, product.inputs[::-1]):
            gate = maker(result, activated)
            if gate is None or gate.kind not in GATED_UNITS:
                continue
            if up == activated or len(consumers(result, activated)) > 1:
                continue
            inputs = (gate.inputs[0], up)
            kind = GATED_UNITS[gate.kind]
            fused = Op(kind, product.name, inputs, product.outputs, {}, product.layer)
            result = replaced(result, [gate, product], fused)
            break
    return result
