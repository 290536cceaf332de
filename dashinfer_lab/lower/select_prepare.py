"""Calls that prepare the inputs of linear layers, once for each form their readers want.

RMSNorm, SwiGLU and GeGLU write prepared rows themselves; any other value goes through `prepare`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.calls import Calls
from dashinfer_lab.lower.ops import GATED_UNITS, Op
from dashinfer_lab.lower.plan import ArenaOperand, Operand, RowsOf, StepOperand, TensorOperand
from jit_kernels.activation_layout import (
    GEMV_ROWS,
    REDUNDANT_ROWS,
    UNTILED,
    padded_k,
    word_elements,
)

__all__ = ["Prepared", "Preparer", "prepare_constants"]

_CACHE_LINE = 64
_UNUSED_GROUP = 64


@dataclass(frozen=True, slots=True)
class Prepared:
    """A linear's input in the arena; the distances are between workers' own copies."""

    activations: str
    scales: str
    copy_bytes: int
    scales_copy_bytes: int

    def operands(self) -> dict[str, Operand]:
        """As kernels on both sides name them."""
        return {
            "activations": ArenaOperand(self.activations),
            "activation_scales": ArenaOperand(self.scales),
            "copy_bytes": self.copy_bytes,
            "scales_copy_bytes": self.scales_copy_bytes,
        }


def prepare_constants(form: str, group: int, *, untiled: bool) -> dict[str, int | str | bool]:
    """Constants of a kernel that prepares rows; `group` is 0 for f32."""
    tile = {"row_tile": UNTILED} if untiled else {}
    return {"form": form, "group": group or _UNUSED_GROUP, **tile}


class Preparer:
    """Remembers what is prepared already."""

    def __init__(self, calls: Calls, makers: Mapping[str, Op]) -> None:
        self._calls = calls
        self._makers = makers
        ops = {id(op): op for op in makers.values()}.values()
        self._readers: defaultdict[str, list[Op]] = defaultdict(list)
        for op in ops:
            for value in op.inputs:
                self._readers[value].append(op)
        self._done: dict[tuple[str, str, int, bool, RowsOf], Prepared] = {}

    def prepare(
        self, reader: Op, form: str, k: int, group: int, rows: RowsOf, *, untiled: bool = False
    ) -> Prepared:
        """The input of linear `reader` as rows of `form`; `group` is 0 for "f32".

        untiled: rows one after the other, whatever their number: see `activation_layout`.
        """
        value = reader.inputs[0]
        key = (value, form, group, untiled, rows)
        if key not in self._done:
            name = f"{value}.{form}{group or ''}{'.untiled' if untiled else ''}.{rows}"
            self._done[key] = self._buffers(name, k, form, group)
            constants = prepare_constants(form, group, untiled=untiled)
            self._call(reader, value, constants, self._done[key], rows)
        return self._done[key]

    def unit_of(self, linear: Op) -> str:
        """The gated unit of all that `linear` makes, gate and up, which it may compute; or none."""
        units = (op.kind for op in self._makers.values() if self._is_of(op, linear))
        return next(units, "")

    def _is_of(self, unit: Op, linear: Op) -> bool:
        return (
            unit.kind in GATED_UNITS.values()
            and tuple(unit.inputs) == tuple(linear.outputs)
            and all(len(self._readers[value]) == 1 for value in unit.inputs)
            and all(reader.kind == "linear" for reader in self._readers[unit.outputs[0]])
        )

    def _buffers(self, name: str, k: int, form: str, group: int) -> Prepared:
        limits = self._calls.limits
        row_bytes = padded_k(k) * 4 // word_elements(form)
        scale_bytes = 8 * (-(-k // group) if group else 1)
        tile = limits.row_tile
        rows = max(-(-limits.max_tokens // tile) * tile, GEMV_ROWS)
        names = (f"{name}.activations", f"{name}.scales")
        copies: list[int] = []
        for buffer, size in zip(names, (row_bytes, scale_bytes), strict=True):
            copy = -(-REDUNDANT_ROWS * size // _CACHE_LINE) * _CACHE_LINE
            self._calls.reserve(buffer, max(rows * size, copy * limits.num_threads))
            copies.append(copy)
        return Prepared(*names, *copies)

    def _call(
        self,
        reader: Op,
        value: str,
        constants: dict[str, int | str | bool],
        prepared: Prepared,
        rows: RowsOf,
    ) -> None:
        maker = self._makers[value]
        operands = prepared.operands()
        if maker.kind == "rmsnorm":
            kernel, sources = "rmsnorm_prepare", {"x": maker.inputs[0]}
            constants["gather"] = rows == "num_logit_rows"
            operands["weight"] = TensorOperand((maker["weight"],))
            operands["eps"] = maker["eps"]
            operands["row_indices"] = StepOperand("logit_rows")
        elif rows == "num_logit_rows":
            raise UnsupportedModelError(f"{reader.name}: the head must follow a norm")
        elif maker.kind in GATED_UNITS.values():
            kernel, sources = (
                f"{maker.kind}_prepare",
                {"gate": maker.inputs[0], "up": maker.inputs[1]},
            )
            constants["by_product"] = self._is_of(maker, self._makers[maker.inputs[0]])
        else:
            kernel, sources = "prepare", {"x": value}
        views = {name: self._calls.views[source] for name, source in sources.items()}
        first = next(iter(views.values()))
        operands |= {name: self._calls.place(view) for name, view in views.items()}
        operands |= {"x_stride": first.stride, "stride": first.stride, "n": first.width}
        self._calls.add(
            kernel,
            constants,
            operands,
            f"{reader.name}.prepare" if kernel == "prepare" else maker.name,
            reader.layer,
            rows=rows,
            barrier="always" if constants.get("row_tile") == UNTILED else "shared",
            reads=tuple(dict.fromkeys(view.buffer for view in views.values())),
            writes=(prepared.activations, prepared.scales),
        )
