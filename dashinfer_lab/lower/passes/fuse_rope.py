"""attention(rotary(q), rotary(k), v) -> rope_append + paged_attention.

rope_append turns q and writes k and v into the cache's pages; paged_attention reads only pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.ops import Op

__all__ = ["fuse_rope"]


def fuse_rope(ops: Sequence[Op]) -> list[Op]:
    """Replace every attention and its two rotary operations."""
    result: list[Op] = []
    makers = {output: op for op in ops for output in op.outputs}
    turned = {id(makers.get(value)) for op in ops if op.kind == "attention" for value in op.inputs}
    for op in ops:
        if op.kind == "attention":
            result += _paged(op, makers)
        elif op.kind != "rotary" or id(op) not in turned:
            result.append(op)
    return result


def _paged(op: Op, makers: dict[str, Op]) -> list[Op]:
    q, k = (makers.get(value) for value in op.inputs[:2])
    if q is None or k is None or q.kind != "rotary" or k.kind != "rotary":
        raise UnsupportedModelError(f"{op.name}: attention without rotary positions")
    queries = f"{op.name}.queries"
    inputs = (q.inputs[0], k.inputs[0], op.inputs[2])
    attributes = {**op.attributes, "cos": q["cos"], "sin": q["sin"]}
    append = Op("rope_append", f"{op.name}.rope", inputs, (queries,), attributes, op.layer)
    attend = Op("paged_attention", op.name, (queries,), op.outputs, op.attributes, op.layer)
    return [append, attend]
