"""Operations to kernel calls: formats, layouts, barriers and operands.

Knows kernels by name; addresses come later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.calls import LOGITS, WALKS, Calls, Constants
from dashinfer_lab.lower.ops import PREPARED_BY_READERS, Op, Weight, consumers
from dashinfer_lab.lower.plan import (
    NothingOperand,
    Operand,
    PlanLimits,
    PlannedOp,
    StepOperand,
    TensorOperand,
)
from dashinfer_lab.lower.select_attention import select_attention, select_rope_append
from dashinfer_lab.lower.select_experts import select_experts
from dashinfer_lab.lower.select_prepare import Preparer
from dashinfer_lab.lower.select_weights import (
    activation_form,
    activation_group,
    scale_format,
    weight_operands,
)
from dashinfer_lab.lower.views import assign_views, padded, value_widths
from dashinfer_lab.quantize import GROUPED_BITS
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["Selection", "select_kernels"]

_UNITS_NOWHERE = dict.fromkeys(("unit_activations", "unit_scales"), NothingOperand())


@dataclass(frozen=True, slots=True)
class Selection:
    """Planned calls and the size of every buffer they name, in bytes."""

    ops: Sequence[PlannedOp]
    sizes: Mapping[str, int]
    logits_stride: int


def select_kernels(
    ops: Sequence[Op], limits: PlanLimits, scale_formats: Mapping[str, str]
) -> Selection:
    """Kernel calls for `ops`; `scale_formats` maps a scale's tensor to "f16" or "f32"."""
    selector = _Selector(ops, limits, scale_formats)
    for op in ops:
        selector.visit(op)
    return selector.finish()


class _Selector:
    """Walks the operations once and appends calls."""

    def __init__(
        self, ops: Sequence[Op], limits: PlanLimits, scale_formats: Mapping[str, str]
    ) -> None:
        self._ops = ops
        self._scale_formats = scale_formats
        self._calls = Calls(limits, assign_views(ops, value_widths(ops)))
        makers = {output: op for op in ops for output in op.outputs}
        self._preparer = Preparer(self._calls, makers)

    def visit(self, op: Op) -> None:
        """Append the calls of one operation."""
        if op.kind in PREPARED_BY_READERS:
            readers = consumers(self._ops, op.outputs[0])
            others = [reader.kind for reader in readers if not _prepares(reader, op.outputs[0])]
            if op.kind == "rmsnorm" and others == ["rope_append"] and len(readers) == 1:
                self._norm_in_place(op)
            elif others:
                raise UnsupportedModelError(f"{op.name}: {op.kind} read by {others[0]}")
        elif op.kind == "embedding":
            self._embedding(op)
        elif op.kind == "gather_rows":
            self._gather_rows(op)
        elif op.kind == "linear":
            self._linear(op)
        elif op.kind == "experts":
            self._experts(op)
        elif op.kind == "norm_add":
            self._norm_add(op)
        elif op.kind == "rope_append":
            select_rope_append(self._calls, op)
        elif op.kind == "paged_attention":
            select_attention(self._calls, op)
        else:
            raise UnsupportedModelError(f"{op.name}: {op.kind} has no kernel of its own")

    def finish(self) -> Selection:
        """Append sampling and hand over."""
        logits = self._calls.views[LOGITS]
        operands: dict[str, Operand] = {
            "logits": StepOperand(LOGITS),
            "logits_stride": logits.stride,
            "vocab": logits.width,
            "requests": StepOperand("sampling"),
            "tokens_out": StepOperand("tokens_out"),
            "finite_out": StepOperand("finite_out"),
            "logsumexp_out": StepOperand("logsumexp_out"),
            "ranks_out": StepOperand("ranks_out"),
            "logits_out": StepOperand("logits_out"),
            "top_ids_out": StepOperand("top_ids_out"),
            "top_logits_out": StepOperand("top_logits_out"),
        }
        self._calls.add("sample", {}, operands, "sample", None, rows="num_logit_rows")
        self._advance()
        return Selection(self._calls.planned, self._calls.sizes, logits.stride)

    def _advance(self) -> None:
        """Append what makes a drawn token the next walk's input."""
        names = (
            "tokens_out", "finite_out", "stop_ids", "tokens_of_walks", "token_ids", "positions",
            "slots", "page_tables", "first_pages", "num_items", "items",
        )  # fmt: skip
        operands: dict[str, Operand] = {name: StepOperand(name) for name in names}
        operands["repeat"] = StepOperand(WALKS)
        operands["requests"] = StepOperand("sampling")
        operands["walk_stride"] = self._calls.limits.max_logit_rows
        self._calls.add("advance", {}, operands, "advance", None, rows="num_logit_rows")

    def _embedding(self, op: Op) -> None:
        weight: Weight = op["weight"]
        operands: dict[str, Operand] = {
            "token_ids": StepOperand("token_ids"),
            **weight_operands(weight),
            "group_size": weight.group_size or weight.k,
            "n": weight.k,
            "multiplier": op["multiplier"],
        }
        constants: Constants = {
            "weight_format": weight.format,
            "scale_format": scale_format(self._scale_formats, weight),
        }
        view = self._calls.views[op.outputs[0]]
        self._calls.write("embedding", constants, operands, op, view)

    def _gather_rows(self, op: Op) -> None:
        x = self._calls.views[op.inputs[0]]
        operands: dict[str, Operand] = {
            "x": self._calls.place(x),
            "x_stride": x.stride,
            "row_indices": StepOperand("logit_rows"),
            "n": x.width,
        }
        view = self._calls.views[op.outputs[0]]
        self._calls.write("gather_rows", {}, operands, op, view, reads=[x.buffer])

    def _linear(self, op: Op) -> None:
        weights: tuple[Weight, ...] = op["weights"]
        first = weights[0]
        group = activation_group(first)
        form = activation_form(first)
        prepared = self._preparer.prepare(op, form, first.k, group)
        widths = tuple(padded(weight.n) for weight in weights)
        biases = tuple(bias or "" for bias in op["biases"])
        residual = self._calls.views[op.inputs[1]] if op["residual"] else None
        # Fused weights lie one after the other, so the first one's address serves for all.
        operands: dict[str, Operand] = {
            **prepared.operands(),
            **weight_operands(first),
            "bias": TensorOperand(biases, widths) if any(biases) else NothingOperand(),
            "residual": self._calls.place(residual) if residual else NothingOperand(),
            "residual_stride": residual.stride if residual else 0,
            "in_features": first.k,
            "num_panels": sum(widths) // PANEL_WIDTH,
            "groups_per_scale": -(-first.group_size // group) if group else 0,
        }
        unit, unit_rows = self._preparer.unit_of(op), self._preparer.unit_rows(op)
        constants: dict[str, int | str | bool] = {
            "has_bias": any(biases),
            "has_residual": residual is not None,
            "gated": unit.kind if unit else "",
        }
        if first.format in GROUPED_BITS:
            constants |= {
                "form": form,
                "group": group,
                "scale_format": scale_format(self._scale_formats, first),
            }
            operands |= unit_rows.operands() if unit_rows else _UNITS_NOWHERE
        if unit_rows:
            constants |= {"unit_form": unit_rows.form, "unit_group": unit_rows.group}
        self._calls.write(
            f"linear_{first.format}",
            constants,
            operands,
            op,
            self._calls.views[op.outputs[0]],
            reads=[prepared.activations, prepared.scales, *([residual.buffer] if residual else [])],
            also_writes=unit_rows.buffers if unit_rows else (),
            alias=self._alias(op, op.inputs[1]) if residual else None,
        )
        if op["softcap"] is not None:
            self._softcap(op)

    def _softcap(self, op: Op) -> None:
        """Append what caps the logits where they lie."""
        view = self._calls.views[op.outputs[0]]
        operands: dict[str, Operand] = {
            "x": self._calls.place(view),
            "x_stride": view.stride,
            "n": view.width,
            "cap": op["softcap"],
        }
        self._calls.add("softcap", {}, operands, f"{op.name}.softcap", None, rows="num_logit_rows")

    def _norm_in_place(self, op: Op) -> None:
        """Queries or keys, all heads together: they stay beside the values."""
        if len(consumers(self._ops, op.inputs[0])) > 1:
            raise UnsupportedModelError(f"{op.name}: what it normalises is read elsewhere")
        view = self._calls.views[op.outputs[0]]
        place = self._calls.place(view)
        operands: dict[str, Operand] = {
            "x": place,
            "x_stride": view.stride,
            "weight": TensorOperand((op["weight"],)),
            "eps": op["eps"],
            "n": view.width,
            "out": place,
            "out_stride": view.stride,
        }
        here = (view.buffer,)
        self._calls.add(
            "rmsnorm", {}, operands, op.name, op.layer, rows=op.rows, reads=here, writes=here
        )

    def _norm_add(self, op: Op) -> None:
        x, residual = (self._calls.views[value] for value in op.inputs)
        operands: dict[str, Operand] = {
            "x": self._calls.place(x),
            "x_stride": x.stride,
            "weight": TensorOperand((op["weight"],)),
            "eps": op["eps"],
            "n": x.width,
            "residual": self._calls.place(residual),
            "residual_stride": residual.stride,
        }
        view = self._calls.views[op.outputs[0]]
        reads, alias = [x.buffer, residual.buffer], self._alias(op, op.inputs[1])
        self._calls.write("rmsnorm_add", {}, operands, op, view, reads=reads, alias=alias)

    def _experts(self, op: Op) -> None:
        alias = self._alias(op, op.inputs[-1]) if op["residual"] else None
        select_experts(self._calls, self._preparer, op, self._scale_formats, alias)

    def _alias(self, op: Op, value: str) -> str | None:
        """The buffer of residual `value`, if `op` may write there: whole, and read no more."""
        view, target = self._calls.views[value], self._calls.views[op.outputs[0]]
        if (view.column, view.stride) != (0, target.stride):
            return None
        readers: set[int] = set()
        for reader in consumers(self._ops, value):
            # RMSNorm and SwiGLU read where the linears that follow them run.
            through = reader.kind in PREPARED_BY_READERS
            found = consumers(self._ops, reader.outputs[0]) if through else [reader]
            readers.update(id(each) for each in found)
        last = [each for each in self._ops if id(each) in readers][-1]
        return view.buffer if last is op else None


def _prepares(reader: Op, value: str) -> bool:
    """Whether `reader` has rows of `value` prepared for it."""
    return reader.kind == "linear" or (reader.kind == "experts" and reader.inputs[0] == value)
