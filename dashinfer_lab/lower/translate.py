"""ONNX nodes to operations, one for one; dispatches on operator and function names alone.

Knows the operators a converted model is made of (see `graph`), refuses any other by name, and
never looks into a local function's body.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.graph.functions import ACTIVATION_BITS, ROTARY_IDS
from dashinfer_lab.lower.calls import LOGITS
from dashinfer_lab.lower.ops import Op, OpKind, Weight

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["translate"]

_WEIGHT_FORMATS = {
    "UnpackPanelsF32": "f32",
    "UnpackPanelsBF16": "bf16",
    "InstantDequantize": "u8",
    "InstantDequantizeU4": "u4",
}
_LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")


def translate(model: ir.Model) -> list[Op]:
    """The graph's operations in its order; raises `UnsupportedModelError` naming the node."""
    translator = _Translator(model)
    for node in model.graph:
        translator.visit(node)
    return translator.ops


class _Translator:
    """Walks nodes once; remembers which values are unpacked weights."""

    def __init__(self, model: ir.Model) -> None:
        self.ops: list[Op] = []
        self._weights: dict[str, Weight] = {}
        self._windows: dict[str, int] = {}
        self._slopes: dict[str, str] = {}
        self._scaled: dict[str, tuple[str, str, bool]] = {}
        self._initializers = frozenset(model.graph.initializers)
        self._methods: dict[str, Callable[[ir.Node], None]] = {
            **dict.fromkeys(_WEIGHT_FORMATS, self._unpack),
            "Transpose": self._transpose,
            "Gather": self._gather,
            "RMSNormalization": self._rms_normalization,
            "RMSNormPerHead": self._rms_norm_per_head,
            "MatMul": self._mat_mul,
            "SparseExperts": self._sparse_experts,
            "GateBySigmoid": self._gate_by_sigmoid,
            "Add": self._add,
            "Mul": self._mul,
            "Swish": self._swish,
            "Gelu": self._gelu,
            "Scaled": self._scaled_embedding,
            "SoftCap": self._soft_cap,
            "RotaryEmbedding": self._rotary_embedding,
            "CausalWindow": self._causal_window,
            "AlibiBias": self._alibi_bias,
            "LogN": self._logn,
            "Attention": self._attention,
        }

    def visit(self, node: ir.Node) -> None:
        """Append the operation `node` stands for, or remember the weight it unpacks."""
        name = node.op_type
        method = self._methods.get(name)
        if method is None:
            raise UnsupportedModelError(
                f"node {node.name!r} has operator {node.domain or 'ai.onnx'}::{name}, which this "
                "version cannot lower; it runs models written by its own `convert`"
            )
        method(node)

    def _emit(
        self, kind: OpKind, node: ir.Node, inputs: list[str], attributes: dict[str, Any]
    ) -> None:
        found = _LAYER.search(f".{node.name}.")
        layer = int(found.group(1)) if found else None
        outputs = (_name(node.outputs[0]),)
        self.ops.append(Op(kind, str(node.name), tuple(inputs), outputs, attributes, layer))

    def _unpack(self, node: ir.Node) -> None:
        names = [_name(value) for value in node.inputs]
        groups = names[1:] or [None, None]
        self._weights[_name(node.outputs[0])] = Weight(
            names[0],
            _WEIGHT_FORMATS[node.op_type],  # type: ignore[arg-type]  # a Literal by the table
            _integer(node, "k"),
            _integer(node, "n"),
            _integer(node, "group_size") if names[1:] else 0,
            groups[0],
            groups[1],
            _activation_bits(node),
        )

    def _weight(self, node: ir.Node, value: Any) -> Weight:
        try:
            return self._weights[_name(value)]
        except KeyError:
            raise UnsupportedModelError(
                f"node {node.name!r} multiplies by {_name(value)!r}, which is not a packed weight"
            ) from None

    def _transpose(self, node: ir.Node) -> None:
        self._weights[_name(node.outputs[0])] = self._weight(node, node.inputs[0])

    def _gather(self, node: ir.Node) -> None:
        weight = self._weight(node, node.inputs[0])
        attributes = {"weight": weight, "multiplier": 1.0}
        self._emit("embedding", node, [_name(node.inputs[1])], attributes)

    def _rms_normalization(self, node: ir.Node) -> None:
        x, weight = (_name(value) for value in node.inputs)
        self._emit("rmsnorm", node, [x], {"weight": weight, "eps": _number(node, "epsilon")})

    def _rms_norm_per_head(self, node: ir.Node) -> None:
        x, weight = (_name(value) for value in node.inputs)
        attributes = {"weight": weight, "eps": _number(node, "epsilon")}
        self._emit("head_norm", node, [x], attributes | {"num_heads": _integer(node, "num_heads")})

    def _mat_mul(self, node: ir.Node) -> None:
        weight = self._weight(node, node.inputs[1])
        attributes: dict[str, Any] = {"weights": (weight,), "biases": (None,), "residual": False}
        attributes["softcap"] = None
        self._emit("linear", node, [_name(node.inputs[0])], attributes)

    def _add(self, node: ir.Node) -> None:
        left, right = (_name(value) for value in node.inputs)
        if right in self._initializers:
            self._add_bias(node, left, right)
        else:
            self._emit("add", node, [left, right], {})

    def _add_bias(self, node: ir.Node, product: str, bias: str) -> None:
        self._become(node, "linear", product, biases=(bias,))

    def _scaled_embedding(self, node: ir.Node) -> None:
        rows = _name(node.inputs[0])
        self._become(node, "embedding", rows, multiplier=_number(node, "factor"))

    def _soft_cap(self, node: ir.Node) -> None:
        if _name(node.outputs[0]) != LOGITS:
            raise UnsupportedModelError(f"node {node.name!r} caps other values than logits")
        self._become(node, "linear", _name(node.inputs[0]), softcap=_number(node, "cap"))

    def _become(self, node: ir.Node, kind: OpKind, value: str, **attributes: Any) -> None:
        """Make `node` part of the operation of `kind` that makes `value`, alone read by it."""
        uses = sum(len(each.uses()) for each in node.inputs if each and each.name == value)
        for position, op in enumerate(self.ops):
            if op.kind == kind and op.outputs == (value,) and uses == 1:
                whole = op.with_attributes(**attributes)
                self.ops[position] = replace(whole, outputs=(_name(node.outputs[0]),))
                return
        raise UnsupportedModelError(f"node {node.name!r} ({node.op_type}) follows no {kind} alone")

    def _mul(self, node: ir.Node) -> None:
        self._emit("multiply", node, [_name(value) for value in node.inputs], {})

    def _sparse_experts(self, node: ir.Node) -> None:
        x, logits = (_name(value) for value in node.inputs[:2])
        attributes = {
            "weights": tuple(self._weight(node, value) for value in node.inputs[2:]),
            "top_k": _integer(node, "top_k"),
            "renormalise": bool(_integer(node, "renormalise")),
            "shared": False,
            "residual": False,
        }
        self._emit("experts", node, [x, logits], attributes)

    def _gate_by_sigmoid(self, node: ir.Node) -> None:
        self._emit("gated", node, [_name(value) for value in node.inputs], {})

    def _swish(self, node: ir.Node) -> None:
        if _number(node, "alpha") != 1.0:
            raise UnsupportedModelError(f"node {node.name!r}: Swish with alpha other than 1")
        self._emit("swish", node, [_name(node.inputs[0])], {})

    def _gelu(self, node: ir.Node) -> None:
        if node.attributes["approximate"].as_string() != "tanh":
            raise UnsupportedModelError(f"node {node.name!r}: Gelu in another form than tanh's")
        self._emit("gelu", node, [_name(node.inputs[0])], {})

    def _rotary_embedding(self, node: ir.Node) -> None:
        if _integer(node, "interleaved") or "rotary_embedding_dim" in node.attributes:
            raise UnsupportedModelError(
                f"node {node.name!r}: pairs must turn half a head apart, as `convert` writes them"
            )
        x, cos, sin, rows = (_name(value) for value in node.inputs)
        attributes = {"cos": cos, "sin": sin, "num_heads": _integer(node, "num_heads")}
        attributes["staged"] = rows == ROTARY_IDS
        self._emit("rotary", node, [x], attributes)

    def _causal_window(self, node: ir.Node) -> None:
        self._windows[_name(node.outputs[0])] = _integer(node, "window")

    def _alibi_bias(self, node: ir.Node) -> None:
        self._slopes[_name(node.outputs[0])] = _name(node.inputs[2])

    def _logn(self, node: ir.Node) -> None:
        x, table, rows = (_name(value) for value in node.inputs)
        self._scaled[_name(node.outputs[0])] = (x, table, rows == ROTARY_IDS)

    def _attention(self, node: ir.Node) -> None:
        attributes: dict[str, Any] = {
            "num_heads": _integer(node, "q_num_heads"),
            "num_kv_heads": _integer(node, "kv_num_heads"),
            "scale": _number(node, "scale"),
            "head_dim": _head_dim(node),
        }
        query, key, value = (_name(each) for each in node.inputs[:3])
        if query in self._scaled:
            query, attributes["query_scale"], attributes["scale_staged"] = self._scaled[query]
        if "softcap" in node.attributes:
            attributes["softcap"] = _number(node, "softcap")
        if node.inputs[3] is not None:
            attributes |= self._mask(_name(node.inputs[3]))
        self._emit("attention", node, [query, key, value], attributes)

    def _mask(self, name: str) -> dict[str, Any]:
        if name in self._windows:
            return {"window": self._windows[name]}
        return {"slopes": self._slopes[name]}


def _activation_bits(node: ir.Node) -> int:
    """Bits that the node's metadata say; 0, which no check lets pass, where they say nonsense."""
    text = node.metadata_props.get(ACTIVATION_BITS, "16")
    return int(text) if text.isascii() and text.isdigit() else 0


def _name(value: Any) -> str:
    return str(value.name)


def _integer(node: ir.Node, name: str) -> int:
    return int(node.attributes[name].as_int())


def _number(node: ir.Node, name: str) -> float:
    return float(node.attributes[name].as_float())


def _head_dim(node: ir.Node) -> int:
    past_key = node.inputs[4]
    assert past_key is not None  # written by `graph`
    assert past_key.shape is not None
    return int(past_key.shape[3])  # type: ignore[arg-type]  # a fixed dimension
