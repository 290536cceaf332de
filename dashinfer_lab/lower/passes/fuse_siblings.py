"""Linear layers that read one input and lie side by side in the weights file -> one linear.

Only those that one operation reads: q, k and v, or gate and up, but not all five where attention
and MLP share their input (Chowdhery et al. 2022), since these lie in two buffers.

q, k, v and gate, up are stored adjacent by `convert`, so fusing needs no repacking; where they are
not (another group size, a column count that is no multiple of a panel) they stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from dashinfer_lab.graph.weights import StoredTensor
from dashinfer_lab.lower.ops import Op, Weight, consumers, replaced
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["fuse_siblings"]


def fuse_siblings(ops: Sequence[Op], tensors: Mapping[str, StoredTensor]) -> list[Op]:
    """Fuse every run of adjacent sibling linears."""
    result = list(ops)
    groups: dict[tuple[str, str], list[Op]] = {}
    for op in ops:
        if op.kind == "linear" and not op["residual"]:
            groups.setdefault((op.inputs[0], _reader(ops, op.outputs[0])), []).append(op)
    for siblings in groups.values():
        if len(siblings) > 1 and _fusable(siblings, tensors):
            result = replaced(result, siblings, _fused(siblings))
    return _in_dataflow_order(result)


def _reader(ops: Sequence[Op], value: str) -> str:
    """What reads `value`, perhaps normalised: it lies beside the other inputs of that one alone."""
    readers = consumers(ops, value)
    if readers and readers[0].kind == "rmsnorm":
        readers = consumers(ops, readers[0].outputs[0])
    return readers[0].name if readers else ""


def _fused(siblings: list[Op]) -> Op:
    first = siblings[0]
    attributes = {
        **first.attributes,
        "weights": tuple(weight for op in siblings for weight in op["weights"]),
        "biases": tuple(bias for op in siblings for bias in op["biases"]),
    }
    name = "+".join([first.name, *(op.name.rpartition(".")[2] for op in siblings[1:])])
    outputs = tuple(output for op in siblings for output in op.outputs)
    return Op("linear", name, first.inputs, outputs, attributes, first.layer)


def _fusable(siblings: list[Op], tensors: Mapping[str, StoredTensor]) -> bool:
    weights: list[Weight] = [weight for op in siblings for weight in op["weights"]]
    biases = [bias is None for op in siblings for bias in op["biases"]]
    if any(weight.n % PANEL_WIDTH for weight in weights[:-1]) or len(set(biases)) > 1:
        return False
    return all(_adjacent(left, right, tensors) for left, right in pairwise(weights))


def _adjacent(left: Weight, right: Weight, tensors: Mapping[str, StoredTensor]) -> bool:
    if (left.format, left.k, left.group_size) != (right.format, right.k, right.group_size):
        return False
    pairs = [(left.panels, right.panels), (left.scale, right.scale), (left.minimum, right.minimum)]
    for before, after in pairs:
        if before is None or after is None:
            continue
        one, other = tensors[before], tensors[after]
        if one.dtype != other.dtype or one.offset + one.num_bytes != other.offset:
            return False
    return True


def _in_dataflow_order(ops: list[Op]) -> list[Op]:
    """Stable order in which every value is made before it is read."""
    made = {output for op in ops for output in op.outputs}
    ready: set[str] = set()
    waiting, ordered = list(ops), list[Op]()
    while waiting:
        op = next(o for o in waiting if all(i in ready or i not in made for i in o.inputs))
        waiting.remove(op)
        ordered.append(op)
        ready.update(op.outputs)
    return ordered
