"""x + linear(h) -> linear(h, residual=x): the sum is made where the product is written."""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.lower.ops import Op, consumers, maker, replaced

__all__ = ["fuse_residual"]


def fuse_residual(ops: Sequence[Op]) -> list[Op]:
    """Fuse every sum of which one side is a linear layer that nothing else reads."""
    result = list(ops)
    for add in [op for op in ops if op.kind == "add"]:
        for product, residual in (add.inputs, add.inputs[::-1]):
            linear = maker(result, product)
            if linear is None or linear.kind != "linear" or linear["residual"]:
                continue
            if product == residual or len(consumers(result, product)) > 1:
                continue
            attributes = {**linear.attributes, "residual": True}
            inputs = (*linear.inputs, residual)
            fused = Op("linear", linear.name, inputs, add.outputs, attributes, linear.layer)
            result = replaced(result, [linear, add], fused)
            break
    return result
