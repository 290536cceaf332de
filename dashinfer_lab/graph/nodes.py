"""The nodes of an ONNX graph in the making, and operators without weights.

Knows nothing of weights, of formats or of any model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashinfer_lab.graph.functions import DOMAIN

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["NodeBuilder", "Value", "shaped", "tensor"]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph, [B, S, num_features]; `+` and `*` add nodes."""

    builder: NodeBuilder
    source: ir.Value
    num_features: int

    def __add__(self, other: Value) -> Value:
        return self.builder.elementwise("Add", self, other)

    def __mul__(self, other: Value) -> Value:
        return self.builder.elementwise("Mul", self, other)


class NodeBuilder:
    """Collects nodes while a model function runs.

    Nodes are named after the layer path and the weight or operator; a value has the name of the
    node that makes it.
    """

    def __init__(self) -> None:
        self._path = ""
        self._nodes: dict[str, ir.Node] = {}
        self._counts: Counter[str] = Counter()

    def layers(self, prefix: str, count: int) -> Iterator[int]:
        """Yield 0 ... count-1; names used meanwhile are relative to `prefix`.i."""
        for layer in range(count):
            self._path = f"{prefix}.{layer}."
            yield layer
        self._path = ""

    def scaled(self, x: Value, factor: float) -> Value:
        """Multiply an embedding by a number."""
        name = f"{x.source.name}.scaled"
        product = self._node("Scaled", name, [x.source], {"factor": factor}, domain=DOMAIN)
        return self._feature(product, x.num_features)

    def softcap(self, logits: Value, cap: float | None) -> Value:
        """cap * tanh(logits / cap); the logits themselves where there is no cap."""
        if cap is None:
            return logits
        name = f"{logits.source.name}.capped"
        capped = self._node("SoftCap", name, [logits.source], {"cap": cap}, domain=DOMAIN)
        return self._feature(capped, logits.num_features)

    def gelu(self, x: Value) -> Value:
        """x * P(X < x), X normal, by its form with tanh (Hendrycks & Gimpel 2016)."""
        attributes = {"approximate": "tanh"}
        activated = self._node("Gelu", f"{x.source.name}.gelu", [x.source], attributes)
        return self._feature(activated, x.num_features)

    def gated(self, x: Value, logit: Value) -> Value:
        """x times the sigmoid of one logit a row."""
        name, inputs = f"{logit.source.name}.gated", [x.source, logit.source]
        gated = self._node("GateBySigmoid", name, inputs, domain=DOMAIN)
        return self._feature(gated, x.num_features)

    def silu(self, x: Value) -> Value:
        """x * sigmoid(x) (Elfwing et al. 2017; ONNX calls it Swish)."""
        activated = self._node("Swish", f"{x.source.name}.silu", [x.source], {"alpha": 1.0})
        return self._feature(activated, x.num_features)

    def elementwise(self, op_type: str, left: Value, right: Value) -> Value:
        """Combine two values of one shape."""
        stem = f"{self._path}{op_type.lower()}"
        self._counts[stem] += 1
        name = f"{stem}_{self._counts[stem]}"
        combined = self._node(op_type, name, [left.source, right.source])
        return self._feature(combined, left.num_features)

    def _node(
        self,
        op_type: str,
        name: str,
        inputs: list[Any],
        attributes: dict[str, Any] | None = None,
        more_outputs: list[ir.Value] | None = None,
        *,
        domain: str = "",
    ) -> ir.Value:
        import onnx_ir as ir

        if name in self._nodes:
            raise ValueError(f"node {name!r} is built twice")
        outputs = [ir.Value(name=name), *(more_outputs or [])]
        node = ir.node(op_type, inputs, attributes, domain=domain, outputs=outputs, name=name)
        self._nodes[name] = node
        return outputs[0]

    def _feature(self, value: ir.Value, num_features: int) -> Value:
        return Value(self, shaped(value, ["B", "S", num_features]), num_features)


def tensor(name: str, dtype: str, shape: list[int | str]) -> ir.Value:
    """A value of the graph that no node makes."""
    import onnx_ir as ir

    return ir.val(name, ir.DataType[dtype], shape)


def shaped(value: ir.Value, shape: list[int | str]) -> ir.Value:
    """Give `value` its type, float32, and shape."""
    import onnx_ir as ir

    value.dtype = ir.DataType.FLOAT
    value.shape = ir.Shape(shape)
    return value
