"""attention(rotary(q), rotary(k), v) -> rope_append + paged_attention; so without rotary.

rope_append turns q and writes k and v into the cache's pages; paged_attention reads only pages.
Where q and k are normalised by head before they turn, rope_append does that too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.ops import Op, consumers

__all__ = ["fuse_rope"]

Makers = Mapping[str, Op]


def fuse_rope(ops: Sequence[Op]) -> list[Op]:
    """Replace every attention, its two rotary operations and the norms before them.

    Raises UnsupportedModelError.
    """
    result: list[Op] = []
    makers = {output: op for op in ops for output in op.outputs}
    gone = {id(op) for attention in ops for op in _before(attention, makers)}
    for op in ops:
        if op.kind == "attention":
            if any(len(consumers(ops, each.outputs[0])) > 1 for each in _before(op, makers)):
                raise UnsupportedModelError(f"{op.name}: its queries or keys are read elsewhere")
            result += _paged(op, makers)
        elif id(op) not in gone:
            result.append(op)
    return result


def _before(op: Op, makers: Makers) -> list[Op]:
    """The operations that become part of attention `op`'s rope_append."""
    if op.kind != "attention":
        return []
    turned = [makers[value] for value in op.inputs[:2] if value in makers]
    turned = [each for each in turned if each.kind == "rotary"]
    untouched = (op, *turned)
    normed = [makers[value] for each in untouched for value in each.inputs[:2] if value in makers]
    return [*turned, *(each for each in normed if each.kind == "head_norm")]


def _paged(op: Op, makers: Makers) -> list[Op]:
    q, k = (makers.get(value) for value in op.inputs[:2])
    queries = f"{op.name}.queries"
    attributes, inputs = {**op.attributes}, op.inputs
    turned = [each for each in (q, k) if each is not None and each.kind == "rotary"]
    if turned:
        attributes |= _rotary_attributes(op, turned)
        inputs = (*(each.inputs[0] for each in turned), op.inputs[2])
    norms = [makers.get(value) for value in inputs[:2]]
    if any(norm is not None and norm.kind == "head_norm" for norm in norms):
        attributes |= _norm_attributes(op, norms)
        inputs = (*(norm.inputs[0] for norm in norms if norm), op.inputs[2])
    append = Op("rope_append", f"{op.name}.rope", inputs, (queries,), attributes, op.layer)
    attend = Op("paged_attention", op.name, (queries,), op.outputs, op.attributes, op.layer)
    return [append, attend]


def _rotary_attributes(op: Op, turned: Sequence[Op]) -> dict[str, Any]:
    kinds = [{k: v for k, v in each.attributes.items() if k != "num_heads"} for each in turned]
    if len(turned) != 2 or kinds[0] != kinds[1]:
        raise UnsupportedModelError(f"{op.name}: queries and keys turn unlike each other")
    return kinds[0]


def _norm_attributes(op: Op, norms: Sequence[Op | None]) -> dict[str, Any]:
    q, k = norms
    if q is None or k is None or {q.kind, k.kind} != {"head_norm"} or q["eps"] != k["eps"]:
        raise UnsupportedModelError(f"{op.name}: queries and keys are normalised unlike each other")
    return {"q_weight": q["weight"], "k_weight": k["weight"], "eps": q["eps"]}
