"""Checks a graph against the table of operators that `lower` understands; changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.functions import DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OPERATORS", "OperatorRule", "verify"]


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """How many inputs and outputs an operator has, and the attributes it must carry."""

    num_inputs: int
    num_outputs: int = 1
    attributes: tuple[str, ...] = ()


OPERATORS: dict[tuple[str, str], OperatorRule] = {
    ("", "Add"): OperatorRule(2),
    ("", "Mul"): OperatorRule(2),
    ("", "MatMul"): OperatorRule(2),
    ("", "Swish"): OperatorRule(1),
    ("", "Gelu"): OperatorRule(1, attributes=("approximate",)),
    ("", "Gather"): OperatorRule(2, attributes=("axis",)),
    ("", "Transpose"): OperatorRule(1, attributes=("perm",)),
    ("", "RMSNormalization"): OperatorRule(2, attributes=("axis", "epsilon")),
    ("", "RotaryEmbedding"): OperatorRule(4, attributes=("num_heads", "interleaved")),
    ("", "Attention"): OperatorRule(
        6, 3, attributes=("is_causal", "q_num_heads", "kv_num_heads", "scale")
    ),
    (DOMAIN, "CausalWindow"): OperatorRule(2, attributes=("window",)),
    (DOMAIN, "AlibiBias"): OperatorRule(3),
    (DOMAIN, "LogN"): OperatorRule(3),
    (DOMAIN, "RMSNormPerHead"): OperatorRule(2, attributes=("num_heads", "epsilon")),
    (DOMAIN, "Scaled"): OperatorRule(1, attributes=("factor",)),
    (DOMAIN, "SoftCap"): OperatorRule(1, attributes=("cap",)),
    (DOMAIN, "SparseExperts"): OperatorRule(5, attributes=("top_k", "renormalise")),
    (DOMAIN, "GateBySigmoid"): OperatorRule(2),
    (DOMAIN, "UnpackPanelsF32"): OperatorRule(1, attributes=("k", "n")),
    (DOMAIN, "UnpackPanelsBF16"): OperatorRule(1, attributes=("k", "n")),
    (DOMAIN, "InstantDequantize"): OperatorRule(3, attributes=("k", "n", "group_size")),
    (DOMAIN, "InstantDequantizeU4"): OperatorRule(3, attributes=("k", "n", "group_size")),
}


def verify(model: ir.Model) -> None:
    """Check operators, attributes, names and order of `model`.

    Raises ArtifactError naming the node and what is wrong with it.
    """
    graph = model.graph
    known = {value.name for value in graph.inputs} | set(graph.initializers)
    for value in graph.initializers.values():
        if value.shape is None or value.dtype is None:
            raise ArtifactError(f"initialiser {value.name!r} has no shape or type")
    for node in graph:
        _verify_node(node)
        absent = [v.name for v in node.inputs if v is not None and v.name not in known]
        if absent:
            raise ArtifactError(f"node {node.name!r} reads {absent}, which nothing before it makes")
        made = [value.name for value in node.outputs]
        twice = [name for name in made if name in known]
        if twice:
            raise ArtifactError(f"node {node.name!r} makes {twice}, which exist already")
        known.update(made)
    unmade = [value.name for value in graph.outputs if value.name not in known]
    if unmade:
        raise ArtifactError(f"outputs {unmade} are made by no node")


def _verify_node(node: ir.Node) -> None:
    rule = OPERATORS.get((node.domain, node.op_type))
    if rule is None:
        raise ArtifactError(
            f"node {node.name!r} is a {node.domain or 'standard'} {node.op_type}, "
            "which this version cannot run"
        )
    if (len(node.inputs), len(node.outputs)) != (rule.num_inputs, rule.num_outputs):
        raise ArtifactError(
            f"node {node.name!r} ({node.op_type}) has {len(node.inputs)} inputs and "
            f"{len(node.outputs)} outputs; {rule.num_inputs} and {rule.num_outputs} are expected"
        )
    missing = [name for name in rule.attributes if name not in node.attributes]
    if missing:
        raise ArtifactError(f"node {node.name!r} ({node.op_type}) lacks the attributes {missing}")
