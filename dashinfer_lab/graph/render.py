"""Shows a graph as text: a summary, or the nodes one a line; changes nothing."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from dashinfer_lab.graph.model_graph import ModelGraph
from dashinfer_lab.quantize import ELEMENT_BYTES

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["listing", "summary"]


def summary(graph: ModelGraph) -> str:
    """Describe sizes, formats and operators in a few lines."""
    c = graph.config
    stored = Counter[str]()
    for weight in graph.weights:
        panels = weight.stored_shapes()[weight.name]
        stored[weight.format] += prod(panels) * ELEMENT_BYTES[weight.format]
    formats = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in stored.most_common())
    operators = Counter(node.op_type for node in graph.ir)
    counts = ", ".join(f"{count} {name}" for name, count in operators.most_common())
    return "\n".join(
        [
            f"{c.model_type}: {graph.num_parameters / 1e6:.1f} M parameters, scheme {graph.scheme}",
            f"  {c.num_layers} layers, hidden {c.hidden_size}, {c.num_heads} heads of {c.head_dim} "
            f"({c.num_kv_heads} for keys), vocabulary {c.vocab_size}, context {c.context_length}",
            f"  weights: {formats}",
            f"  operators: {counts}",
        ]
    )


def listing(graph: ir.Graph, prefix: str = "") -> str:
    """Show the nodes whose names start with `prefix`, one a line: name = Op(inputs) attributes."""
    return "\n".join(_line(node) for node in graph if (node.name or "").startswith(prefix))


def _line(node: ir.Node) -> str:
    inputs = ", ".join("-" if value is None else str(value.name) for value in node.inputs)
    attributes = " ".join(f"{name}={node.attributes[name].value}" for name in node.attributes)
    return f"{node.name} = {node.op_type}({inputs})" + (f" {{{attributes}}}" if attributes else "")
