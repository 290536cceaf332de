"""Bytes and operations of a kernel call, by kernel; a new kernel is one line of `WORK`.

Bytes are those that must move at least once a step: every weight the call uses, the keys and
values it attends to, its input and output rows. What a cache had to be given twice is not counted,
and small rows never leave the caches, so a call may show more than memory's bandwidth.
A multiply-add is two operations; exp, square root and a division are one each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dashinfer_lab.profiling.steps import StepShape
from jit_kernels.activation_layout import GEMV_ROWS, padded_k, word_elements
from jit_kernels.panels import PANEL_WIDTH, num_words

__all__ = ["WORK", "Part", "ProfiledOp", "Work", "work_of"]

_FLOAT: Final = 4
_WORD: Final = 4
_WEIGHT_BITS: Final = {"f32": 32, "bf16": 16, "u8": 8, "u4": 4}
_GROUPED: Final = ("u8", "u4")
_SCALE_BYTES: Final = {"f16": 2, "f32": 4}
_PARTIAL_EXTRA: Final = 16  # beside o[D]: maximum, sum and padding


@dataclass(frozen=True, slots=True)
class ProfiledOp:
    """One operation of a program: its kernel and place, and the numbers its work depends on.

    layer: None outside the layers.  rows: the counter of rows it works on.
    kv_bytes_per_position: keys and values of one position of its layer, 0 where it reads none.
    """

    kernel: str
    name: str
    layer: int | None
    rows: str = "num_tokens"
    constants: Mapping[str, int | str | bool] | None = None
    numbers: Mapping[str, float] | None = None
    kv_bytes_per_position: int = 0

    def number(self, name: str) -> int:
        """A size among its operands or constants; `KeyError` where there is none."""
        return int({**(self.constants or {}), **(self.numbers or {})}[name])

    def choice(self, name: str) -> str:
        """A constant that names a format."""
        return str((self.constants or {})[name])

    def work_key(self) -> object:
        """Equal for operations that do equal work in equal steps."""
        numbers = tuple(sorted((self.numbers or {}).items()))
        constants = tuple(sorted((self.constants or {}).items()))
        return self.kernel, self.rows, self.kv_bytes_per_position, numbers, constants


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes by what they hold, and floating-point (or integer product) operations."""

    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    flops: int = 0

    @property
    def num_bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def intensity(self) -> float:
        """Operations a byte; 0 where no byte moves."""
        return self.flops / self.num_bytes if self.num_bytes else 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.weight_bytes + other.weight_bytes,
            self.kv_bytes + other.kv_bytes,
            self.activation_bytes + other.activation_bytes,
            self.flops + other.flops,
        )


_UNIT_FLOPS: Final = {"swiglu": 5, "geglu": 9}
"""Of an element of a gated unit."""
Part = Callable[[ProfiledOp, StepShape], Work]
"""One formula of a kernel; a fused kernel has several."""


def _product(weight_format: str) -> Part:
    """Y[R, N] = X[R, K] W[K, N]; columns that pad the last panel count."""

    def work(op: ProfiledOp, step: StepShape) -> Work:
        rows, k = step.rows(op.rows), op.number("in_features")
        n = op.number("num_panels") * PANEL_WIDTH
        if not rows:
            return Work()
        weight_bytes, row_bytes = _matrix_and_row(op, weight_format)
        weight_bytes += n * _FLOAT if op.number("has_bias") else 0
        streams = 2 if op.number("has_residual") else 1
        activation_bytes = rows * (row_bytes + streams * n * _FLOAT)
        product = Work(weight_bytes, 0, activation_bytes, 2 * rows * n * k)
        unit = _UNIT_FLOPS.get(str((op.constants or {}).get("gated")))
        if unit is None or rows <= GEMV_ROWS:
            return product
        units = Work(flops=unit * rows * n // 2)
        form = (op.constants or {}).get("unit_form")
        if not form:
            return product + units + Work(activation_bytes=-rows * n // 2 * _FLOAT)
        made = _prepared_of(rows, n // 2, str(form), op.number("unit_group"))
        return product + units + made + Work(activation_bytes=-rows * n * _FLOAT)

    return work


def _matrix_and_row(op: ProfiledOp, weight_format: str) -> tuple[int, int]:
    """Bytes of one matrix W[K, N] and of one prepared row that meets it."""
    k, n = op.number("in_features"), op.number("num_panels") * PANEL_WIDTH
    weight_bytes = n * num_words(k, _WEIGHT_BITS[weight_format]) * _WORD
    if weight_format not in _GROUPED:
        return weight_bytes, padded_k(k) * _FLOAT
    groups = -(-k // op.number("group"))
    scales = -(-groups // op.number("groups_per_scale"))
    weight_bytes += 2 * n * scales * _SCALE_BYTES[op.choice("scale_format")]
    row_bytes = padded_k(k) * _FLOAT // word_elements(op.choice("form"))
    return weight_bytes, row_bytes + groups * 2 * _FLOAT


def _expert_product(weight_format: str) -> Part:
    """Every pair {row, expert} once; the experts read are those that rows meet on average.

    One row reads exactly its own; that of E experts, each meeting a share k / E of the rows,
    E · (1 - (1 - k / E)^R) are met by any of R rows, is true where routing is even.
    """

    def work(op: ProfiledOp, step: StepShape) -> Work:
        rows, top_k, count = step.rows(op.rows), op.number("top_k"), op.number("num_experts")
        k, n = op.number("in_features"), op.number("num_panels") * PANEL_WIDTH
        met = round(count * (1 - (1 - top_k / count) ** rows))
        weight_bytes, row_bytes = _matrix_and_row(op, weight_format)
        pairs = rows * top_k
        return Work(met * weight_bytes, 0, pairs * (row_bytes + n * _FLOAT), 2 * pairs * n * k)

    return work


def _route(op: ProfiledOp, step: StepShape) -> Work:
    """Softmax over the experts, and the choice of some."""
    elements = step.rows(op.rows) * op.number("num_experts")
    return Work(activation_bytes=elements * _FLOAT, flops=3 * elements)


def _group_rows(op: ProfiledOp, step: StepShape) -> Work:
    """An expert's id read, a row and a place written for every pair."""
    return Work(activation_bytes=3 * step.rows(op.rows) * op.number("top_k") * _WORD)


def _combine(op: ProfiledOp, step: StepShape) -> Work:
    """Every pair's outputs, the shared expert's and the residual, added up."""
    n = op.number("num_panels") * PANEL_WIDTH
    summands = op.number("top_k") + op.number("has_shared") + op.number("has_residual")
    elements = step.rows(op.rows) * n
    return Work(activation_bytes=(summands + 1) * elements * _FLOAT, flops=2 * summands * elements)


def _looked_up_rows(op: ProfiledOp, step: StepShape) -> Work:
    """One row of the table a token, widened to float."""
    rows, n = step.rows(op.rows), op.number("n")
    row_bytes = n * _WEIGHT_BITS[op.choice("weight_format")] // 8
    flops = 0
    if op.choice("weight_format") == "u8":
        groups = -(-n // op.number("group_size"))
        row_bytes += 2 * groups * _SCALE_BYTES[op.choice("scale_format")]
        flops = 2 * rows * n
    return Work(rows * row_bytes, 0, rows * n * _FLOAT, flops)


def _rows_in(op: ProfiledOp, step: StepShape) -> Work:
    """Float rows [R, n], read."""
    return Work(activation_bytes=step.rows(op.rows) * op.number("n") * _FLOAT)


def _copied_rows(op: ProfiledOp, step: StepShape) -> Work:
    """Float rows [R, n], read and written."""
    return _rows_in(op, step) + _rows_in(op, step)


def _norm(op: ProfiledOp, step: StepShape) -> Work:
    """x / sqrt(mean(x²) + eps) · weight, of rows [R, n]."""
    elements = step.rows(op.rows) * op.number("n")
    return _rows_in(op, step) + Work(op.number("n") * _FLOAT, flops=4 * elements)


def _norm_in_rows(op: ProfiledOp, step: StepShape) -> Work:
    """norm(x), written as rows again."""
    return _norm(op, step) + _rows_in(op, step)


def _norm_add(op: ProfiledOp, step: StepShape) -> Work:
    """residual + norm(x), of rows [R, n]: the residual read, the sum written."""
    elements = step.rows(op.rows) * op.number("n")
    return _norm(op, step) + Work(activation_bytes=2 * elements * _FLOAT, flops=elements)


def _prepared_rows(op: ProfiledOp, step: StepShape) -> int:
    """Rows of the step or, with experts, pairs {row, expert}."""
    return step.rows(op.rows) * int((op.numbers or {}).get("pairs_per_row", 1))


def _gated(unit: str) -> Part:
    """activation(gate) · up, of rows [R, n] each; or units, read, where the product made them."""

    def work(op: ProfiledOp, step: StepShape) -> Work:
        rows = _prepared_rows(op, step)
        elements = rows * op.number("n")
        by_product = (op.constants or {}).get("by_product")
        if by_product == "units" and rows > GEMV_ROWS:
            return Work(activation_bytes=elements * _FLOAT)
        return Work(activation_bytes=2 * elements * _FLOAT, flops=_UNIT_FLOPS[unit] * elements)

    return work


def _softcap(op: ProfiledOp, step: StepShape) -> Work:
    """c · tanh(x / c) of rows [R, n], read and written."""
    elements = step.rows(op.rows) * op.number("n")
    return Work(activation_bytes=2 * elements * _FLOAT, flops=6 * elements)


def _prepared(op: ProfiledOp, step: StepShape) -> Work:
    """Rows as a linear layer takes them, written: float32, or integers and two floats a group."""
    rows, form = _prepared_rows(op, step), op.choice("form")
    group = 0 if form == "f32" else op.number("group")
    return _prepared_of(rows, op.number("n"), form, group)


def _prepared_of(rows: int, n: int, form: str, group: int) -> Work:
    row_bytes = padded_k(n) * _FLOAT // word_elements(form)
    if form == "f32":
        return Work(activation_bytes=rows * row_bytes)
    scales = -(-n // group) * 2 * _FLOAT
    return Work(activation_bytes=rows * (row_bytes + scales), flops=2 * rows * n)


def _prepared_unit(unit: str) -> Part:
    """A gated unit, prepared; nothing where the product that makes gate and up did both."""
    gated = _gated(unit)

    def work(op: ProfiledOp, step: StepShape) -> Work:
        is_done = (op.constants or {}).get("by_product") == "rows"
        if is_done and _prepared_rows(op, step) > GEMV_ROWS:
            return Work()
        return gated(op, step) + _prepared(op, step)

    return work


def _rope_append(op: ProfiledOp, step: StepShape) -> Work:
    """Turn q and k; q goes to rows, k and v to the pages."""
    rows, d = step.rows(op.rows), op.number("head_dim")
    heads, kv_heads = op.number("num_heads"), op.number("num_kv_heads")
    activations = rows * (2 * heads + 2 * kv_heads) * d * _FLOAT
    flops = 3 * rows * (heads + kv_heads) * d
    return Work(0, rows * op.kv_bytes_per_position, activations, flops)


def _head_norms(op: ProfiledOp, step: StepShape) -> Work:
    """x / sqrt(mean(x²) + eps) · weight of every head of q and k, as they are turned."""
    d = op.number("head_dim")
    heads = op.number("num_heads") + op.number("num_kv_heads")
    return Work(2 * d * _FLOAT, flops=4 * step.rows(op.rows) * heads * d)


def _attention(op: ProfiledOp, step: StepShape) -> Work:
    """softmax(q kᵀ) v; a chunk's keys and values are read once for all of its rows.

    Rows of a window see its keys alone, and read no others.
    """
    heads = op.number("num_kv_heads") * op.number("heads_per_kv")
    d = op.number("head_dim")
    window = op.number("window") if (op.constants or {}).get("windowed") else None
    read = sum(chunk.end - _hidden(chunk.start, window) for chunk in step.chunks)
    scores = sum(_keys_seen(c.end, window) - _keys_seen(c.start, window) for c in step.chunks)
    rows = 2 * step.num_tokens * heads * d * _FLOAT
    return Work(0, read * op.kv_bytes_per_position, rows, 4 * heads * d * scores)


def _hidden(position: int, window: int | None) -> int:
    """Keys before the window of a row at `position`."""
    return 0 if window is None else max(0, position + 1 - window)


def _keys_seen(count: int, window: int | None) -> int:
    """Keys that the first `count` rows of a request see, added up."""
    growing = count if window is None else min(count, window)
    return growing * (growing + 1) // 2 + (count - growing) * (window or 0)


def _merge(op: ProfiledOp, step: StepShape) -> Work:
    """Join the segments of rows that were split over workers."""
    heads = op.number("num_kv_heads") * op.number("heads_per_kv")
    d = op.number("head_dim")
    states = step.num_partials * heads
    return Work(activation_bytes=states * (d + _PARTIAL_EXTRA) * _FLOAT, flops=3 * states * d)


def _draw(op: ProfiledOp, step: StepShape) -> Work:
    """Largest logit and log-sum-exp of a row, read once; cutting by top-k and top-p is extra."""
    elements = step.rows(op.rows) * op.number("vocab")
    return Work(activation_bytes=elements * _FLOAT, flops=3 * elements)


WORK: Final[dict[str, tuple[Part, ...]]] = {
    "embedding": (_looked_up_rows,),
    "linear_f32": (_product("f32"),),
    "linear_bf16": (_product("bf16"),),
    "linear_u8": (_product("u8"),),
    "linear_u4": (_product("u4"),),
    "expert_linear_f32": (_expert_product("f32"),),
    "expert_linear_bf16": (_expert_product("bf16"),),
    "expert_linear_u8": (_expert_product("u8"),),
    "expert_linear_u4": (_expert_product("u4"),),
    "route": (_route,),
    "group_rows": (_group_rows,),
    "combine_experts": (_combine,),
    "gather_rows": (_copied_rows,),
    "rmsnorm_prepare": (_norm, _prepared),
    "rmsnorm": (_norm_in_rows,),
    "rmsnorm_add": (_norm_add,),
    "swiglu_prepare": (_prepared_unit("swiglu"),),
    "geglu_prepare": (_prepared_unit("geglu"),),
    "softcap": (_softcap,),
    "prepare": (_rows_in, _prepared),
    "rope_append": (_rope_append,),
    "norm_rope_append": (_rope_append, _head_norms),
    "attention": (_attention,),
    "attention_merge": (_merge,),
    "sample": (_draw,),
    "advance": (lambda op, step: Work(),),
}
"""The formulas of every kernel, by its name in a plan."""


def work_of(op: ProfiledOp, step: StepShape) -> Work | None:
    """What `op` does in a step of this shape; None for a kernel that `WORK` does not know."""
    parts = WORK.get(op.kernel)
    return None if parts is None else sum((part(op, step) for part in parts), Work())
