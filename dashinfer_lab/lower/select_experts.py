"""Calls for a mixture of experts: route, sort pairs {row, rank} by expert, multiply, sum.

Buffers of pairs have room for every row's. The router's logits are a linear layer's before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashinfer_lab.lower.calls import Calls, Constants
from dashinfer_lab.lower.ops import Op, Weight, num_experts
from dashinfer_lab.lower.plan import ArenaOperand, NothingOperand, Operand
from dashinfer_lab.lower.select_prepare import Preparer, prepare_constants
from dashinfer_lab.lower.select_weights import (
    activation_form,
    activation_group,
    scale_format,
    weight_operands,
)
from dashinfer_lab.lower.views import FLOAT_BYTES, padded
from jit_kernels.activation_layout import padded_k, word_elements
from jit_kernels.kernels.route import EXPERT_WORDS
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["select_experts"]

_WORD = 8


def select_experts(
    calls: Calls,
    preparer: Preparer,
    op: Op,
    scale_formats: Mapping[str, str],
    alias: str | None,
) -> None:
    """Append the calls of one operation; `alias`: the residual's buffer, if nothing reads it."""
    _Experts(calls, op, scale_formats).select(preparer, alias)


class _Experts:
    """One operation's buffers by what they hold, and its calls."""

    def __init__(self, calls: Calls, op: Op, scale_formats: Mapping[str, str]) -> None:
        self._calls = calls
        self._op = op
        self._scale_formats = scale_formats
        self._count = num_experts(op)
        self._top_k: int = op["top_k"]
        self._pairs = calls.limits.max_tokens * self._top_k

    def select(self, preparer: Preparer, alias: str | None) -> None:
        """Append all calls."""
        gate, up, down = self._op["weights"]
        self._route()
        group = activation_group(gate)
        form = activation_form(gate)
        ready = preparer.prepare(self._op, form, gate.k, group, untiled=True)
        source = (ready.activations, ready.scales)
        self._multiply(gate, source, "gates", gather=True)
        self._multiply(up, source, "ups", gather=True)
        self._swiglu(down)
        source = (self._name("inner"), self._name("inner_scales"))
        self._multiply(down, source, "outputs", gather=False)
        self._combine(alias)

    def _route(self) -> None:
        logits = self._calls.views[self._op.inputs[1]]
        for name in ("ids", "weights", "rows", "slots"):
            self._room(name, self._pairs * 4)
        self._room("cursors", self._count * _WORD)
        self._room("counts", 2 * _WORD)
        self._room("active", min(self._count, self._pairs) * EXPERT_WORDS * _WORD)
        operands: dict[str, Operand] = {
            **self._grouped(),
            "logits": self._calls.place(logits),
            "logits_stride": logits.stride,
            "expert_weights": self._at("weights"),
        }
        constants: Constants = {"renormalise": self._op["renormalise"]}
        self._add("route", constants, operands, [logits.buffer], ("ids", "weights"))
        written = ("cursors", "counts", "active", "rows", "slots")
        self._add("group_rows", {}, operands, [self._name("ids")], written)

    def _grouped(self) -> dict[str, Operand]:
        """The choices and the sorted pairs, as kernels name them."""
        return {
            "expert_ids": self._at("ids"),
            "cursors": self._at("cursors"),
            "num_pairs": self._at("counts"),
            "experts": self._at("active"),
            "token_rows": self._at("rows"),
            "slots": self._at("slots"),
            "num_experts": self._count,
            "top_k": self._top_k,
        }

    def _multiply(
        self, weight: Weight, source: tuple[str, str], part: str, *, gather: bool
    ) -> None:
        """Multiply every pair's row by its expert's matrix into the buffer `part`.

        source: the prepared rows, those that the pairs name (`gather`) or one for each pair.
        """
        columns, group = weight.n // self._count, activation_group(weight)
        self._room(part, self._pairs * columns * FLOAT_BYTES)
        operands: dict[str, Operand] = {
            **self._grouped(),
            **weight_operands(weight),
            "activations": ArenaOperand(source[0]),
            "activation_scales": ArenaOperand(source[1]),
            "out": self._at(part),
            "out_stride": columns,
            "in_features": weight.k,
            "num_panels": columns // PANEL_WIDTH,
            "groups_per_scale": -(-weight.group_size // group) if group else 0,
        }
        constants: dict[str, int | str | bool] = {"gather": gather}
        if group:
            scales = scale_format(self._scale_formats, weight)
            form = activation_form(weight)
            constants |= {"form": form, "group": group, "scale_format": scales}
        reads = [*source, *map(self._name, ("counts", "active", "rows"))]
        name = weight.panels.removesuffix(".weight")
        self._add(f"expert_linear_{weight.format}", constants, operands, reads, (part,), name)

    def _swiglu(self, down: Weight) -> None:
        """Prepare every pair's gate and up for the matrices that lead back."""
        group, form = activation_group(down), activation_form(down)
        self._room("inner", self._pairs * padded_k(down.k) * FLOAT_BYTES // word_elements(form))
        self._room("inner_scales", self._pairs * 8 * (-(-down.k // group) if group else 1))
        operands: dict[str, Operand] = {
            "rows": self._at("counts"),
            "gate": self._at("gates"),
            "up": self._at("ups"),
            "stride": padded(down.k),
            "n": down.k,
            "activations": self._at("inner"),
            "activation_scales": self._at("inner_scales"),
            "copy_bytes": 0,
            "scales_copy_bytes": 0,
            "pairs_per_row": self._top_k,
        }
        constants = prepare_constants(form, group, untiled=True)
        reads = [*map(self._name, ("counts", "gates", "ups"))]
        self._add("swiglu_prepare", constants, operands, reads, ("inner", "inner_scales"))

    def _combine(self, alias: str | None) -> None:
        names = ["shared", "shared_gate"] if self._op["shared"] else []
        names += ["residual"] if self._op["residual"] else []
        views = {
            name: self._calls.views[value]
            for name, value in zip(names, self._op.inputs[2:], strict=True)
        }
        target = self._calls.views[self._op.outputs[0]]
        operands: dict[str, Operand] = {
            "expert_outputs": self._at("outputs"),
            "expert_stride": padded(target.width),
            "slots": self._at("slots"),
            "expert_weights": self._at("weights"),
            "top_k": self._top_k,
            "num_panels": padded(target.width) // PANEL_WIDTH,
        }
        for name in ("shared", "shared_gate", "residual"):
            view = views.get(name)
            operands[name] = self._calls.place(view) if view else NothingOperand()
            operands[f"{name}_stride"] = view.stride if view else 0
        constants = {"has_shared": self._op["shared"], "has_residual": self._op["residual"]}
        reads = [*map(self._name, ("outputs", "slots", "weights"))]
        reads += [view.buffer for view in views.values()]
        self._calls.write(
            "combine_experts", constants, operands, self._op, target, reads=reads, alias=alias
        )

    def _add(
        self,
        kernel: str,
        constants: Constants,
        operands: Mapping[str, Operand],
        reads: Sequence[str],
        writes: Sequence[str],
        name: str | None = None,
    ) -> None:
        written = tuple(map(self._name, writes))
        label = name or f"{self._op.name}.{kernel.removesuffix('_prepare')}"
        op = self._op
        self._calls.add(
            kernel, constants, operands, label, op.layer, rows=op.rows, reads=reads, writes=written
        )

    def _name(self, part: str) -> str:
        return f"{self._op.name}.{part}"

    def _at(self, part: str) -> ArenaOperand:
        return ArenaOperand(self._name(part))

    def _room(self, part: str, num_bytes: int) -> None:
        self._calls.reserve(self._name(part), num_bytes)
