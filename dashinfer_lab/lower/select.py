"""Operations to kernels: formats, layouts, barriers and operands of every call.

A linear's input is prepared by the operator that makes it (RMSNorm, SwiGLU) or by `prepare`, once
for each form that its readers want. Knows kernels by name; addresses come later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.ops import Op, Weight, consumers
from dashinfer_lab.lower.plan import (
    ArenaOperand,
    BarrierKind,
    CacheOperand,
    CounterOperand,
    NothingOperand,
    Operand,
    PlanLimits,
    PlannedOp,
    RowsOf,
    StepOperand,
    TensorOperand,
    WorkspaceOperand,
)
from dashinfer_lab.lower.views import FLOAT_BYTES, View, assign_views, padded, value_widths
from dashinfer_lab.quantize import GROUP_SIZES
from jit_kernels.activation_layout import GEMV_ROWS, REDUNDANT_ROWS, padded_k

__all__ = ["LOGITS", "Selection", "select_kernels"]

LOGITS = "logits"
_LARGEST_ACTIVATION_GROUP = 256
_CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A linear's input as the kernel wants it."""

    activations: str
    scales: str
    copy_bytes: int
    scales_copy_bytes: int


@dataclass(slots=True)
class Selection:
    """Planned calls and the size of every buffer they name, in bytes."""

    ops: list[PlannedOp]
    sizes: dict[str, int]
    logits_stride: int
    hidden_size: int


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
        self._limits = limits
        self._scale_formats = scale_formats
        self._makers = {output: op for op in ops for output in op.outputs}
        self._views = assign_views(ops, value_widths(ops))
        self._prepared: dict[tuple[str, str, int], _Prepared] = {}
        self._planned: list[PlannedOp] = []
        self._sizes: dict[str, int] = {}

    def visit(self, op: Op) -> None:
        """Append the calls of one operation."""
        if op.kind in ("rmsnorm", "swiglu"):
            others = [r.kind for r in consumers(self._ops, op.outputs[0]) if r.kind != "linear"]
            if others:
                raise UnsupportedModelError(f"{op.name}: {op.kind} read by {others[0]}")
            return
        method = {
            "embedding": self._embedding,
            "linear": self._linear,
            "rope_append": self._rope_append,
            "paged_attention": self._attention,
        }.get(op.kind)
        if method is None:
            raise UnsupportedModelError(f"{op.name}: {op.kind} has no kernel on its own")
        method(op)

    def finish(self) -> Selection:
        """Append sampling and hand over."""
        logits = self._views[LOGITS]
        hidden = next(op["weight"].k for op in self._ops if op.kind == "embedding")
        operands: dict[str, Operand] = {
            "logits": StepOperand(LOGITS),
            "logits_stride": logits.stride,
            "vocab": logits.width,
            "requests": StepOperand("sampling"),
            "tokens_out": StepOperand("tokens_out"),
            "finite_out": StepOperand("finite_out"),
            "logsumexp_out": StepOperand("logsumexp_out"),
        }
        self._call("sample", {}, operands, "sample", None, rows="num_logit_rows")
        return Selection(self._planned, self._sizes, logits.stride, hidden)

    def _embedding(self, op: Op) -> None:
        weight: Weight = op["weight"]
        operands: dict[str, Operand] = {
            "token_ids": StepOperand("token_ids"),
            **self._weight_operands([weight]),
            "minimum_": self._weight_operands([weight])["minimum"],
            "group_size": weight.group_size or weight.k,
            "n": weight.k,
        }
        constants = {"format": weight.format, "scale_format": self._scale_format(weight)}
        self._write("embedding", constants, operands, op, self._views[op.outputs[0]])

    def _linear(self, op: Op) -> None:
        weights: tuple[Weight, ...] = op["weights"]
        first = weights[0]
        rows: RowsOf = "num_logit_rows" if LOGITS in op.outputs else "num_tokens"
        group = _activation_group(first)
        prepared = self._prepare(op, first, group, rows)
        biases = tuple(bias for bias in op["biases"] if bias is not None)
        widths = tuple(padded(weight.n) for weight in weights)
        residual = self._views[op.inputs[1]] if op["residual"] else None
        operands: dict[str, Operand] = {
            "activations": ArenaOperand(prepared.activations),
            "activation_scales": ArenaOperand(prepared.scales),
            "copy_bytes": prepared.copy_bytes,
            "scales_copy_bytes": prepared.scales_copy_bytes,
            **self._weight_operands(weights),
            "bias": TensorOperand(biases, widths) if biases else NothingOperand(),
            "residual": self._place(residual) if residual else NothingOperand(),
            "residual_stride": residual.stride if residual else 0,
            "in_features": first.k,
            "num_panels": sum(widths) // 16,
            "groups_per_scale": -(-first.group_size // group) if group else 0,
        }
        constants: dict[str, int | str | bool] = {
            "has_bias": bool(biases),
            "has_residual": residual is not None,
        }
        if first.format == "u8":
            constants |= {"group": group, "scale_format": self._scale_format(first)}
        reads = [prepared.activations, prepared.scales] + ([residual.buffer] if residual else [])
        self._write(
            f"linear_{first.format}", constants, operands, op, self._views[op.outputs[0]],
            reads=reads, rows=rows, alias=self._alias(op) if residual else None,
        )  # fmt: skip

    def _alias(self, op: Op) -> str | None:
        """The residual's buffer, if this is the last operation that reads it."""
        value = op.inputs[1]
        readers = self._readers_through_prepare(value)
        return self._views[value].buffer if readers and readers[-1] is op else None

    def _readers_through_prepare(self, value: str) -> list[Op]:
        """Operations at which `value` is read, in order; RMSNorm reads where its linears run."""
        found: set[int] = set()
        for op in consumers(self._ops, value):
            through = op.kind in ("rmsnorm", "swiglu")
            for reader in consumers(self._ops, op.outputs[0]) if through else [op]:
                found.add(id(reader))
        return [op for op in self._ops if id(op) in found]

    def _prepare(self, op: Op, weight: Weight, group: int, rows: RowsOf) -> _Prepared:
        """The op's input in the form its weight wants, prepared now if no one has yet."""
        value = op.inputs[0]
        form = "i16" if weight.format == "u8" else "f32"
        key = (value, form, group)
        if key not in self._prepared:
            prepared = self._prepared_buffers(f"{value}.{form}{group or ''}", weight.k, form, group)
            self._prepared[key] = prepared
            constants: dict[str, int | str | bool] = {
                "form": form,
                "group": group or 64,
                "row_tile": self._limits.row_tile,
            }
            self._prepare_call(op, value, constants, prepared, rows)
        return self._prepared[key]

    def _prepared_buffers(self, name: str, k: int, form: str, group: int) -> _Prepared:
        row_bytes = padded_k(k) * (2 if form == "i16" else 4)
        scale_bytes = -(-k // group) * 8 if group else 8
        sizes: list[int] = []
        copies: list[int] = []
        tile = self._limits.row_tile
        rows = max(-(-self._limits.max_tokens // tile) * tile, GEMV_ROWS)
        for size in (row_bytes, scale_bytes):
            copy = -(-REDUNDANT_ROWS * size // _CACHE_LINE) * _CACHE_LINE
            copies.append(copy)
            sizes.append(max(rows * size, copy * self._limits.num_threads))
        activations, scales = f"{name}.activations", f"{name}.scales"
        self._sizes[activations], self._sizes[scales] = sizes
        return _Prepared(activations, scales, *copies)

    def _prepare_call(
        self,
        op: Op,
        value: str,
        constants: dict[str, int | str | bool],
        prepared: _Prepared,
        rows: RowsOf,
    ) -> None:
        maker = self._makers[value]
        operands: dict[str, Operand] = {
            "activations": ArenaOperand(prepared.activations),
            "activation_scales": ArenaOperand(prepared.scales),
            "copy_bytes": prepared.copy_bytes,
            "scales_copy_bytes": prepared.scales_copy_bytes,
        }
        if maker.kind == "rmsnorm":
            kernel, sources = "rmsnorm_prepare", [self._views[maker.inputs[0]]]
            constants = {**constants, "gather": rows == "num_logit_rows"}
            operands |= {
                "weight": TensorOperand((maker["weight"],)),
                "eps": maker["eps"],
                "row_indices": StepOperand("logit_rows"),
            }
        elif maker.kind == "swiglu":
            kernel, sources = "swiglu_prepare", [self._views[v] for v in maker.inputs]
        else:
            kernel, sources = "prepare", [self._views[value]]
        if rows == "num_logit_rows" and maker.kind != "rmsnorm":
            raise UnsupportedModelError(f"{op.name}: the head must follow a norm")
        names = ("gate", "up") if maker.kind == "swiglu" else ("x",)
        operands |= {name: self._place(view) for name, view in zip(names, sources, strict=True)}
        stride = sources[0].stride
        operands |= {"x_stride": stride, "stride": stride, "n": sources[0].width}
        reads = tuple(dict.fromkeys(view.buffer for view in sources))
        writes = (prepared.activations, prepared.scales)
        name = maker.name if maker.kind in ("rmsnorm", "swiglu") else f"{op.name}.prepare"
        self._call(
            kernel, constants, operands, name, op.layer, rows=rows, barrier="shared", reads=reads,
            writes=writes,
        )  # fmt: skip

    def _rope_append(self, op: Op) -> None:
        query, key, value = (self._views[v] for v in op.inputs)
        if op["head_dim"] % 16:
            raise UnsupportedModelError(
                f"{op.name}: head size {op['head_dim']} is not a multiple of 16"
            )
        if not query.buffer == key.buffer == value.buffer:
            raise UnsupportedModelError(f"{op.name}: q, k, v do not lie side by side")
        target = self._views[op.outputs[0]]
        operands: dict[str, Operand] = {
            "qkv": self._place(query),
            "qkv_stride": query.stride,
            "positions": StepOperand("positions"),
            "cos": TensorOperand((op["cos"],)),
            "sin": TensorOperand((op["sin"],)),
            "slots": StepOperand("slots"),
            "q_out": self._place(target),
            "q_stride": target.stride,
            "kv": CacheOperand(op.layer or 0),
            "num_heads": op["num_heads"],
            "num_kv_heads": op["num_kv_heads"],
        }
        self._grow(target)
        self._call(
            "rope_append", {"head_dim": op["head_dim"]}, operands, op.name, op.layer,
            barrier="always", reads=(query.buffer,), writes=(target.buffer,),
        )  # fmt: skip

    def _attention(self, op: Op) -> None:
        query, target = self._views[op.inputs[0]], self._views[op.outputs[0]]
        heads_per_kv = op["num_heads"] // op["num_kv_heads"]
        constants = {"head_dim": op["head_dim"], "heads_per_kv": heads_per_kv}
        shared: dict[str, Operand] = {
            "num_kv_heads": op["num_kv_heads"],
            "out_stride": target.stride,
            "partials": StepOperand("partials"),
        }
        operands: dict[str, Operand] = {
            **shared,
            "num_items": StepOperand("num_items"),
            "items": StepOperand("items"),
            "queries": self._place(query),
            "query_stride": query.stride,
            "pages": CacheOperand(op.layer or 0),
            "page_tables": StepOperand("page_tables"),
            "scale": op["scale"],
        }
        self._write("attention", constants, operands, op, target, reads=[query.buffer])
        merge: dict[str, Operand] = {
            **shared,
            "num_splits": StepOperand("num_splits"),
            "splits": StepOperand("splits"),
        }
        self._write("attention_merge", constants, merge, op, target, reads=[])

    def _weight_operands(self, weights: Sequence[Weight]) -> dict[str, Operand]:
        """Fused weights lie one after the other, so the first one's address serves for all."""
        first = weights[0]
        operands: dict[str, Operand] = {"panels": TensorOperand((first.panels,))}
        for name, tensor in (("scale", first.scale), ("minimum", first.minimum)):
            operands[name] = TensorOperand((tensor,)) if tensor else NothingOperand()
        return operands

    def _scale_format(self, weight: Weight) -> str:
        return self._scale_formats[weight.scale] if weight.scale else "f32"

    def _place(self, view: View) -> Operand:
        if view.buffer == LOGITS:
            return StepOperand(LOGITS)
        return ArenaOperand(view.buffer, view.byte_offset)

    def _grow(self, view: View) -> None:
        if view.buffer != LOGITS:
            self._sizes[view.buffer] = self._limits.max_tokens * view.stride * FLOAT_BYTES

    def _write(
        self,
        kernel: str,
        constants: Mapping[str, int | str | bool],
        operands: Mapping[str, Operand],
        op: Op,
        view: View,
        *,
        reads: Sequence[str] = (),
        rows: RowsOf = "num_tokens",
        alias: str | None = None,
    ) -> None:
        """A call that writes float rows and that everyone waits for."""
        self._grow(view)
        operands = {**operands, "out": self._place(view), "out_stride": view.stride}
        writes = () if view.buffer == LOGITS else (view.buffer,)
        self._call(
            kernel, constants, operands, op.name, op.layer, rows=rows, barrier="always",
            reads=tuple(reads), writes=writes, alias=alias,
        )  # fmt: skip

    def _call(
        self,
        kernel: str,
        constants: Mapping[str, int | str | bool],
        operands: Mapping[str, Operand],
        name: str,
        layer: int | None,
        *,
        rows: RowsOf = "num_tokens",
        barrier: BarrierKind = "always",
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        alias: str | None = None,
    ) -> None:
        everywhere: dict[str, Operand] = {
            "rows": StepOperand(rows),
            "counter": CounterOperand(),
            "workspace": WorkspaceOperand(),
        }
        self._planned.append(
            PlannedOp(
                kernel,
                dict(constants),
                {**everywhere, **operands},
                rows,
                barrier,  # type: ignore[arg-type]  # a Literal at every call
                name,
                layer,
                tuple(reads),
                tuple(writes),
                alias,
            )  # fmt: skip
        )


def _activation_group(weight: Weight) -> int:
    """Elements of k quantised together; 0 for float inputs.

    The weight's group, at most 256; a whole row, whatever its length, is cut every 256.
    """
    if weight.format != "u8":
        return 0
    return min(weight.group_size, _LARGEST_ACTIVATION_GROUP) if _is_power(weight) else 256


def _is_power(weight: Weight) -> bool:
    return weight.group_size in GROUP_SIZES
