"""Linear layers that read one input and lie side by side in the weights file -> one linear.

Only those that one operation reads side by side, in its order: q, k and v, or gate and up, but not
all five where attention and MLP share their input (Chowdhery et al. 2022), since these lie in two
buffers.

q, k, v and gate, up are stored adjacent by `convert`, so fusing needs no repacking; where they are
not (another group size, a column count that is no multiple of a panel) they stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

from dashinfer_lab.graph.weights import StoredTensor
from dashinfer_lab.lower.ops import GATED_UNITS, Op, Weight, maker, replaced
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["fuse_siblings"]


def fuse_siblings(ops: Sequence[Op], tensors: Mapping[str, StoredTensor]) -> list[Op]:
    """Fuse every run of adjacent sibling linears."""
    result = list(ops)
    for reader in ops:
        if reader.kind not in ("rope_append", *GATED_UNITS.values()):
            continue
        values = [_made(ops, value) for value in reader.inputs]
        siblings = [op for op in map(partial(maker, ops), dict.fromkeys(values)) if op is not None]
        whole = all(any(op is other for other in result) for op in siblings)
        if len(siblings) > 1 and whole and _fusable(siblings, tensors):
            result = replaced(result, siblings, _fused(siblings))
    return _in_dataflow_order(result)


def _made(ops: Sequence[Op], value: str) -> str:
    """What `value` was before it was normalised where it lies."""
    norm = maker(ops, value)
    return norm.inputs[0] if norm is not None and norm.kind == "rmsnorm" else value


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
    if any(op.kind != "linear" or op["residual"] for op in siblings):
        return False
    if len({op.inputs[0] for op in siblings}) > 1:
        return False
    weights: list[Weight] = [weight for op in siblings for weight in op["weights"]]
    biases = [bias is None for op in siblings for bias in op["biases"]]
    if any(weight.n % PANEL_WIDTH for weight in weights[:-1]) or len(set(biases)) > 1:
        return False
    return all(_adjacent(left, right, tensors) for left, right in pairwise(weights))


def _adjacent(left: Weight, right: Weight, tensors: Mapping[str, StoredTensor]) -> bool:
    kinds = [(w.format, w.k, w.group_size, w.activation_bits) for w in (left, right)]
    if kinds[0] != kinds[1]:
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
