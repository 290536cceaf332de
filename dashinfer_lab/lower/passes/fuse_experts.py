"""x + (experts(h) + gated(shared)) -> experts(h, shared, residual=x): one kernel makes the sum.

The shared expert, and the residual, are there or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.lower.ops import Op, consumers, maker, replaced

__all__ = ["fuse_experts"]


def fuse_experts(ops: Sequence[Op]) -> list[Op]:
    """Fuse every sum of which one side is a mixture of experts that nothing else reads."""
    result = list(ops)
    for add in [op for op in ops if op.kind == "add"]:
        for summed, other in (add.inputs, add.inputs[::-1]):
            experts = maker(result, summed)
            if experts is None or experts.kind != "experts" or experts["residual"]:
                continue
            if len(consumers(result, summed)) > 1:
                continue
            gated = maker(result, other)
            if gated is not None and gated.kind == "gated" and not experts["shared"]:
                fused = _joined(experts, add, gated.inputs, "shared")
                result = replaced(result, [experts, gated, add], fused)
            else:
                fused = _joined(experts, add, (other,), "residual")
                result = replaced(result, [experts, add], fused)
            break
    return result


def _joined(experts: Op, add: Op, inputs: tuple[str, ...], what: str) -> Op:
    attributes = {**experts.attributes, what: True}
    inputs = (*experts.inputs, *inputs)
    return Op("experts", experts.name, inputs, add.outputs, attributes, experts.layer)
