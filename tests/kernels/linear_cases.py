"""Operands of the linear kernels for tests and benchmarks: weights packed, activations prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jit_kernels import panels as packing
from jit_kernels.activation_layout import GEMV_ROWS, REDUNDANT_ROWS
from jit_kernels.compiler.jit import Compiler
from jit_kernels.kernel import CompiledKernel
from jit_kernels.kernels.claims import COUNTER_WORDS
from jit_kernels.kernels.linear_blocks import WORKSPACE_BYTES
from jit_kernels.kernels.linear_float import linear_bf16, linear_f32
from jit_kernels.kernels.linear_schedule import DEFAULT_SCHEDULE
from jit_kernels.kernels.linear_tiles import row_tile
from jit_kernels.kernels.linear_u4 import linear_u4
from jit_kernels.kernels.linear_u8 import linear_u8
from jit_kernels.reference import linear as reference
from jit_kernels.reference.prepare import Prepared, prepare, quantize

Array = np.ndarray[Any, Any]
Place = Callable[[Array], Array]

_PACK: dict[str, Callable[[Array], Array]] = {
    "f32": packing.pack_f32,
    "bf16": packing.pack_bf16,
    "u8": packing.pack_u8,
    "u4": packing.pack_u4,
}
_KERNELS = {"f32": linear_f32, "bf16": linear_bf16, "u8": linear_u8, "u4": linear_u4}


@dataclass(frozen=True)
class Linear:
    """A random product: `weight` is [N, K] as the kernel sees it after unpacking."""

    kind: str
    x: Array
    weight: Array
    scale: Array
    minimum: Array
    group: int = 64
    weight_group: int | str = 64
    bias: Array | None = None
    residual: Array | None = None
    cache: dict[str, Array] = field(default_factory=dict)
    form: str = "i16"
    gated: str = ""
    unit_form: str = ""
    unit_group: int = 0

    @property
    def grouped(self) -> bool:
        """Whether weights are integers with a scale and a minimum a group."""
        return self.kind in ("u8", "u4")

    @property
    def rows(self) -> int:
        return self.x.shape[0]

    @property
    def k(self) -> int:
        return self.x.shape[1]

    @property
    def n(self) -> int:
        return self.weight.shape[0]

    @property
    def groups_per_scale(self) -> int:
        return -(-packing.group_length(self.k, self.weight_group) // self.group)

    @property
    def num_panels(self) -> int:
        return packing.num_panels(self.n)

    def take(self, rows: slice | list[int]) -> Linear:
        """The same weights met by some of the rows."""
        residual = None if self.residual is None else self.residual[rows]
        return Linear(
            self.kind, self.x[rows], self.weight, self.scale, self.minimum, self.group,
            self.weight_group, self.bias, residual, self.cache, self.form,
        )  # fmt: skip

    def packed(self) -> Array:
        if "panels" not in self.cache:
            self.cache["panels"] = _PACK[self.kind](self.weight)
        return self.cache["panels"]

    def expected(self) -> Array:
        """The bits that the kernel owes, [R, N]."""
        if self.grouped:
            q, scales = quantize(self.x, self.group, self.form)
            factors = (a.astype(np.float32).T for a in (self.scale, self.minimum))
            total = reference.linear_groups(
                q, scales, self.weight.T, *factors, self.group, self.groups_per_scale
            )
        else:
            weight = self.weight if self.kind == "f32" else packing.from_bf16(self.weight)
            total = reference.linear_float(self.x, weight.T)
        bias = None if self.bias is None else self.bias[: self.n]
        residual = None if self.residual is None else self.residual[:, : self.n]
        return reference.finish_linear(total, bias, residual)


def random_linear(
    kind: str,
    rows: int,
    k: int,
    n: int,
    *,
    seed: int = 0,
    weight_group: int | str = 64,
    scale_dtype: Any = np.float16,
    bias: bool = False,
    residual: bool = False,
) -> Linear:
    """Random operands of one product; `kind` names a kernel and may end in a form, as "u8 i7"."""
    kind, _, form = kind.partition(" ")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    length = packing.group_length(k, weight_group)
    num_scales = packing.num_groups(k, weight_group)
    scale = (rng.random((n, num_scales)) / 255 + 1e-3).astype(scale_dtype)
    minimum = (-rng.random((n, num_scales))).astype(scale_dtype)
    if kind in ("u8", "u4"):
        weight = rng.integers(0, 256 if kind == "u8" else 16, (n, k), np.uint8)
    else:
        weight = (rng.standard_normal((n, k)) / k**0.5).astype(np.float32)
        weight = packing.to_bf16(weight) if kind == "bf16" else weight
    columns = packing.num_panels(n) * packing.PANEL_WIDTH
    return Linear(
        kind,
        x,
        weight,
        scale,
        minimum,
        min(256, length) if weight_group != "row" else 256,
        weight_group,
        rng.standard_normal(columns).astype(np.float32) if bias else None,
        rng.standard_normal((rows, columns)).astype(np.float32) if residual else None,
        form=form or "i16",
    )


def specialise(
    case: Linear, compiler: Compiler, schedule: str = DEFAULT_SCHEDULE, tile: int | None = None
) -> CompiledKernel:
    """The kernel for a case; `tile` rows in a strip, by default as many as the machine likes."""
    constants: dict[str, Any] = {
        "has_bias": case.bias is not None,
        "has_residual": case.residual is not None,
        "row_tile": tile or row_tile(compiler.isa),
        "schedule": schedule,
        "gated": case.gated,
    }
    if case.grouped:
        scale_format = "f16" if case.scale.dtype == np.float16 else "f32"
        constants |= {"form": case.form, "group": case.group, "scale_format": scale_format}
        constants |= {"unit_form": case.unit_form, "unit_group": case.unit_group}
    return _KERNELS[case.kind].specialise(**constants).compile(compiler)


def copies_for_workers(case: Linear, tile: int, num_workers: int) -> tuple[Prepared, int, int]:
    """Prepared activations as the workers find them, and the bytes between copies."""
    form = case.form if case.grouped else "f32"
    one = prepare(case.x, form, case.group, tile)
    if case.rows > REDUNDANT_ROWS:
        return one, 0, 0
    words, scales = (np.ascontiguousarray(np.stack([a] * num_workers)) for a in one)
    return Prepared(words, scales), one.words.nbytes, one.scales.nbytes


def run(
    case: Linear,
    compiler: Compiler,
    *,
    num_workers: int = 1,
    in_place: bool = False,
    live_rows: int | None = None,
    place: Place = lambda array: array,
    schedule: str = DEFAULT_SCHEDULE,
    tile: int | None = None,
    units: Prepared | None = None,
) -> Array:
    """Run every worker's part in turn; [R, N] out. `place` puts operands into memory.

    `live_rows` is what the kernel is told of the number of rows; `units`, where a gated product is
    to prepare what it makes.
    """
    tile = tile or row_tile(compiler.isa)
    kernel = specialise(case, compiler, schedule, tile)
    prepared, copy_bytes, scales_bytes = copies_for_workers(case, tile, num_workers)
    nothing = np.zeros(0, np.float32)
    out_shape = (case.rows, case.num_panels * 16)
    residual = nothing if case.residual is None else place(case.residual.copy())
    out = residual if in_place else place(np.full(out_shape, np.nan, np.float32))
    counter = np.zeros(COUNTER_WORDS, np.int64)
    held = [np.array([case.rows if live_rows is None else live_rows]), place(prepared.words)]
    held += [place(prepared.scales)] if case.grouped else []
    scalars = [copy_bytes, scales_bytes] if case.grouped else [copy_bytes]
    weights = [place(case.packed())]
    if case.grouped:
        weights += [place(packing.pack_groups(a)) for a in (case.scale, case.minimum)]
    workspace = np.zeros(num_workers * WORKSPACE_BYTES, np.uint8)
    arguments: list[Any] = [*held, *scalars, *weights]
    arguments += [nothing if case.bias is None else place(case.bias)]
    arguments += [residual, out_shape[1], out, out_shape[1], case.k, case.num_panels]
    arguments += [case.groups_per_scale] if case.grouped else []
    arguments += [counter, workspace, WORKSPACE_BYTES]
    if case.grouped:
        arguments += [*units] if units else [nothing.view(np.int32), nothing]
    for worker in range(num_workers):
        kernel(*arguments, worker=worker, num_workers=num_workers)
    return out[:, : case.n]


__all__ = ["GEMV_ROWS", "Linear", "copies_for_workers", "random_linear", "run", "specialise"]
