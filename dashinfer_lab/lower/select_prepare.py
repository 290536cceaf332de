"""Calls that prepare the inputs of linear layers, once for each form their readers want.

RMSNorm, SwiGLU and GeGLU write prepared rows themselves; any other value goes through `prepare`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dashinfer_lab.lower.calls import Calls
from dashinfer_lab.lower.ops import GATED_UNITS, Op, Weight
from dashinfer_lab.lower.plan import ArenaOperand, Operand, RowsOf, TensorOperand
from dashinfer_lab.lower.select_weights import activation_form, activation_group
from dashinfer_lab.quantize import GROUPED_BITS
from jit_kernels.activation_layout import (
    GEMV_ROWS,
    MAX_UNIT_COLUMNS,
    REDUNDANT_ROWS,
    UNTILED,
    padded_k,
    word_elements,
)

__all__ = ["Prepared", "Preparer", "UnitRows", "prepare_constants"]

_Key = tuple[str, str, int, bool, RowsOf]
"""Value, form, group, whether untiled, and which rows."""
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


@dataclass(frozen=True, slots=True)
class UnitRows:
    """The input of the linear that reads a gated unit, as the product that makes it prepares it."""

    form: str
    group: int
    prepared: Prepared

    @property
    def buffers(self) -> tuple[str, str]:
        """What the product writes beside its own rows."""
        return self.prepared.activations, self.prepared.scales

    def operands(self) -> dict[str, Operand]:
        """As the product names them."""
        names = ("unit_activations", "unit_scales")
        return {
            name: ArenaOperand(buffer) for name, buffer in zip(names, self.buffers, strict=True)
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
        self._reserved: dict[_Key, Prepared] = {}
        self._called: set[_Key] = set()

    def prepare(
        self, reader: Op, form: str, k: int, group: int, *, untiled: bool = False
    ) -> Prepared:
        """The input of linear `reader` as rows of `form`; `group` is 0 for "f32".

        untiled: rows one after the other, whatever their number: see `activation_layout`.
        """
        key = (reader.inputs[0], form, group, untiled, reader.rows)
        prepared = self._reserve(key, k)
        if key not in self._called:
            self._called.add(key)
            constants = prepare_constants(form, group, untiled=untiled)
            self._call(reader, reader.inputs[0], constants, prepared)
        return prepared

    def unit_of(self, linear: Op) -> Op | None:
        """The gated unit of all that `linear` makes, gate and up, which it may compute."""
        return next((op for op in self._makers.values() if self._is_of(op, linear)), None)

    def unit_rows(self, linear: Op) -> UnitRows | None:
        """The rows that `linear` may prepare of its unit, which will then be `prepare`'s.

        Products of integers do so where one linear reads the unit, by groups that they can keep.
        """
        unit, weights = self.unit_of(linear), linear["weights"]
        if unit is None or weights[0].format not in GROUPED_BITS:
            return None
        value, readers = unit.outputs[0], self._readers[unit.outputs[0]]
        if len(readers) != 1 or readers[0].inputs[0] != value:
            return None
        weight: Weight = readers[0]["weights"][0]
        form, group = activation_form(weight), activation_group(weight)
        if not 0 < group <= MAX_UNIT_COLUMNS or weight.k % group:
            return None
        prepared = self._reserve((value, form, group, False, linear.rows), weight.k)
        return UnitRows(form, group, prepared)

    def _by_product(self, unit: Op) -> str:
        """What the product that makes gate and up does of `unit`: see `GatedOperands`."""
        linear = self._makers[unit.inputs[0]]
        if not self._is_of(unit, linear):
            return ""
        return "units" if self.unit_rows(linear) is None else "rows"

    def _is_of(self, unit: Op, linear: Op) -> bool:
        return (
            unit.kind in GATED_UNITS.values()
            and tuple(unit.inputs) == tuple(linear.outputs)
            and all(len(self._readers[value]) == 1 for value in unit.inputs)
            and all(reader.kind == "linear" for reader in self._readers[unit.outputs[0]])
        )

    def _reserve(self, key: _Key, k: int) -> Prepared:
        """Room for the rows of `k` elements that `key` names."""
        if key not in self._reserved:
            value, form, group, untiled, rows = key
            name = f"{value}.{form}{group or ''}{'.untiled' if untiled else ''}.{rows}"
            self._reserved[key] = self._buffers(name, k, form, group)
        return self._reserved[key]

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
    ) -> None:
        maker = self._makers[value]
        operands = prepared.operands()
        if maker.kind == "rmsnorm":
            kernel, sources = "rmsnorm_prepare", {"x": maker.inputs[0]}
            operands["weight"] = TensorOperand((maker["weight"],))
            operands["eps"] = maker["eps"]
        elif maker.kind in GATED_UNITS.values():
            kernel, sources = (
                f"{maker.kind}_prepare",
                {"gate": maker.inputs[0], "up": maker.inputs[1]},
            )
            constants["by_product"] = self._by_product(maker)
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
            rows=reader.rows,
            barrier="always" if constants.get("row_tile") == UNTILED else "shared",
            reads=tuple(dict.fromkeys(view.buffer for view in views.values())),
            writes=(prepared.activations, prepared.scales),
        )
