"""Refuses a graph whose sizes contradict one another, its tensors or the model's configuration.

Kernels believe every size they are given, and a model may come from anyone: what passes here reads
and writes within its tensors, buffers and pages. Looks at operations as translated, before passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NoReturn, cast

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph import StoredTensor
from dashinfer_lab.lower.calls import LOGITS
from dashinfer_lab.lower.ops import Op, Weight
from dashinfer_lab.quantize import (
    GROUP_SIZES,
    GROUPED_BITS,
    GroupSize,
    group_shape,
    panel_shape,
    whole_panels,
)

__all__ = ["check_sizes"]

_PANEL_TYPES = {"f32": "F32", "bf16": "BF16", "u8": "U8", "u4": "U8"}
_IDS = "input_ids"
_LONGEST_WINDOW = 1 << 31


def check_sizes(
    ops: Sequence[Op], tensors: Mapping[str, StoredTensor], config: ModelConfig
) -> None:
    """Raise ArtifactError naming the first operation that does not fit."""
    checker = _Checker(tensors, config)
    for op in ops:
        checker.visit(op)
    checker.finish()


class _Checker:
    """Walks the operations once and keeps the width of every value they make."""

    def __init__(self, tensors: Mapping[str, StoredTensor], config: ModelConfig) -> None:
        self._tensors = tensors
        self._config = config
        self._widths: dict[str, int] = {}
        self._layers: list[int | None] = []

    def visit(self, op: Op) -> None:
        """Check one operation and note what it makes."""
        if op.kind == "embedding":
            width = self._embedding(op)
        elif op.kind == "linear":
            width = self._linear(op)
        elif op.kind == "attention":
            width = self._attention(op)
        elif op.kind == "experts":
            width = self._experts(op)
        elif op.kind == "gated":
            width = self._width(op, op.inputs[0])
            if self._width(op, op.inputs[1]) != 1:
                _refuse(op, f"is gated by {self._width(op, op.inputs[1])} logits a row")
        else:
            widths = {self._width(op, value) for value in op.inputs}
            if len(widths) != 1:
                _refuse(op, f"joins values of {sorted(widths)} columns")
            (width,) = widths
            if op.kind == "rmsnorm":
                self._require(op, op["weight"], (width,))
            elif op.kind == "rotary":
                self._rotary(op, width)
            elif op.kind == "head_norm":
                self._heads(op, width)
                self._require(op, op["weight"], (self._config.head_dim,))
        self._widths[op.outputs[0]] = width
        if LOGITS in op.inputs:
            _refuse(op, "reads the logits")
        if LOGITS in op.outputs and op.kind != "linear":
            _refuse(op, "makes the logits, which a linear layer must")

    def finish(self) -> None:
        """Check what the whole must have: logits, and attention once in every layer."""
        config = self._config
        if self._widths.get(LOGITS) != config.vocab_size:
            raise ArtifactError(
                f"the graph makes {self._widths.get(LOGITS)} logits for a vocabulary of "
                f"{config.vocab_size}; re-convert the model"
            )
        if self._layers != list(range(config.num_layers)):
            raise ArtifactError(
                f"the graph attends in layers {self._layers!r:.100}, the configuration has "
                f"{config.num_layers}; re-convert the model"
            )

    def _embedding(self, op: Op) -> int:
        weight: Weight = op["weight"]
        self._matrix(op, weight)
        if weight.format == "u4":
            _refuse(op, "looks up rows of 4-bit weights, which no kernel reads")
        if op.inputs != (_IDS,) or weight.n != self._config.vocab_size:
            _refuse(op, f"looks up {op.inputs} in {weight.n} rows")
        return weight.k

    def _linear(self, op: Op) -> int:
        (weight,), (bias,) = op["weights"], op["biases"]
        self._matrix(op, weight)
        if weight.k != self._width(op, op.inputs[0]):
            _refuse(op, f"multiplies {self._width(op, op.inputs[0])} columns by {weight.k} rows")
        if bias is not None:
            self._require(op, bias, (weight.n,))
        return weight.n

    def _experts(self, op: Op) -> int:
        """Check that there is a router's logit, and a matrix of each kind, for every expert."""
        width, count = (self._width(op, value) for value in op.inputs)
        gate, up, down = weights = op["weights"]
        for weight in weights:
            self._matrix(op, weight)
        columns = [count * whole_panels(n) for n in (down.k, down.k, width)]
        inputs = [width, width, down.k]
        if [w.n for w in weights] != columns or [w.k for w in weights] != inputs:
            _refuse(op, f"has matrices that {count} experts of {width} columns do not share")
        kinds = {(w.format, w.group_size, w.activation_bits) for w in (gate, up)}
        if len(kinds) != 1:
            _refuse(op, "has gates and ups in different formats")
        if not 1 <= op["top_k"] <= count:
            _refuse(op, f"chooses {op['top_k']} of {count} experts")
        return width

    def _rotary(self, op: Op, width: int) -> None:
        self._heads(op, width)
        self._require_staged(op, op["staged"])
        for table in (op["cos"], op["sin"]):
            self._require(op, table, (self._config.num_rotary_rows, self._config.head_dim // 2))

    def _require_staged(self, op: Op, staged: bool) -> None:
        """Check that a table of positions is read by the rows that the configuration gives it."""
        if staged is not (self._config.num_rotary_stages > 1):
            _refuse(op, "reads its table of positions by other rows than the configuration's")

    def _heads(self, op: Op, width: int) -> None:
        heads, head_dim = op["num_heads"], self._config.head_dim
        if width != heads * head_dim:
            _refuse(op, f"takes {width} columns as {heads} heads of {head_dim}")

    def _attention(self, op: Op) -> int:
        config = self._config
        expected = (config.num_heads, config.num_kv_heads, config.head_dim)
        if (op["num_heads"], op["num_kv_heads"], op["head_dim"]) != expected:
            _refuse(op, f"has other heads than the configuration's {expected}")
        for value, heads in zip(op.inputs, (*expected[:2], expected[1]), strict=True):
            if self._width(op, value) != heads * config.head_dim:
                _refuse(op, f"reads {self._width(op, value)} columns as {heads} heads")
        if not 1 <= op.attributes.get("window", 1) < _LONGEST_WINDOW:
            _refuse(op, f"sees a window of {op['window']} keys")
        if not 0 < op.attributes.get("softcap", 1) < inf:
            _refuse(op, f"caps scores at {op['softcap']}")
        if "slopes" in op.attributes:
            self._require(op, op["slopes"], (config.num_heads,))
        if "query_scale" in op.attributes:
            self._require_staged(op, op["scale_staged"])
            self._require(op, op["query_scale"], (self._config.num_rotary_rows,))
        self._layers.append(op.layer)
        return config.num_heads * config.head_dim

    def _matrix(self, op: Op, weight: Weight) -> None:
        """Check that a weight's tensors hold [n, k] in its format."""
        if weight.k < 1 or weight.n < 1:
            _refuse(op, f"has a weight of {weight.k} rows and {weight.n} columns")
        panels = panel_shape(weight.n, weight.k, weight.format)
        self._require(op, weight.panels, panels, (_PANEL_TYPES[weight.format],))
        if weight.format not in GROUPED_BITS:
            return
        if weight.activation_bits not in (8, 16):
            _refuse(op, f"asks for activations of {weight.activation_bits} bits, not 8 or 16")
        size = weight.group_size
        if size not in GROUP_SIZES and size != weight.k:
            _refuse(op, f"has groups of {size}")
        shape = group_shape(weight.n, weight.k, cast("GroupSize", size))
        self._require(op, weight.scale, shape, ("F16", "F32"))
        scale = self._tensors[cast("str", weight.scale)]
        self._require(op, weight.minimum, shape, (scale.dtype,))

    def _require(
        self, op: Op, name: Any, shape: tuple[int, ...], types: tuple[str, ...] = ("F32",)
    ) -> None:
        tensor = self._tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype not in types:
            found = "absent" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            _refuse(op, f"needs {name!r} as {' or '.join(types)} {list(shape)}, it is {found}")

    def _width(self, op: Op, value: str) -> int:
        if value not in self._widths:
            _refuse(op, f"reads {value!r}, which no operation makes")
        return self._widths[value]


def _refuse(op: Op, reason: str) -> NoReturn:
    raise ArtifactError(f"{op.kind} {op.name!r} {reason}; re-convert the model")
