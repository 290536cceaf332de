"""Where values lie: a value is some columns of a buffer's rows; siblings share rows.

q, k, v lie side by side because rope_append reads them as one row, gate and up because they are
made by one linear. Knows nothing of kernels' operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.ops import GATED_UNITS, PREPARED_BY_READERS, Op
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["FLOAT_BYTES", "View", "assign_views", "padded", "value_widths"]

FLOAT_BYTES = 4


def padded(n: int) -> int:
    """`n` columns rounded up to whole panels."""
    return -(-n // PANEL_WIDTH) * PANEL_WIDTH


@dataclass(frozen=True, slots=True)
class View:
    """Columns `column` to `column + width` of float32 rows of `stride` in `buffer`."""

    buffer: str
    column: int
    width: int
    stride: int

    @property
    def byte_offset(self) -> int:
        """Of the first element of the first row."""
        return self.column * FLOAT_BYTES


class _Views(dict[str, View]):
    """By value; one that is written nowhere as float rows has none."""

    def __missing__(self, value: str) -> View:
        raise UnsupportedModelError(
            f"{value!r:.200} is computed for linear layers alone, but something else reads it"
        )


def value_widths(ops: Sequence[Op]) -> dict[str, int]:
    """Columns of every value the operations make."""
    widths: dict[str, int] = {}
    for op in ops:
        if op.kind == "linear":
            for output, weight in zip(op.outputs, op["weights"], strict=True):
                widths[output] = weight.n
        elif op.kind == "embedding":
            widths[op.outputs[0]] = op["weight"].k
        elif op.kind in ("rope_append", "paged_attention"):
            widths[op.outputs[0]] = op["num_heads"] * op["head_dim"]
        else:
            widths[op.outputs[0]] = widths[op.inputs[0]]
    return widths


def assign_views(ops: Sequence[Op], widths: Mapping[str, int]) -> dict[str, View]:
    """A view for every value that is written as float rows.

    Raises UnsupportedModelError where a value would have to lie in two places.
    """
    views = _Views()
    normed = {op.outputs[0]: op.inputs[0] for op in ops if op.kind == "rmsnorm"}
    num_readers = Counter(value for op in ops for value in op.inputs)
    for op in ops:
        if op.kind in ("rope_append", *GATED_UNITS.values()):
            made = [normed.get(value, value) for value in op.inputs]
            for value, view in _side_by_side(op, made, widths).items():
                if views.setdefault(value, view) != view:
                    raise UnsupportedModelError(
                        f"{op.name}: {value!r:.200} already lies beside other values: let another "
                        "linear layer make it"
                    )
            # Queries and keys that are normalised whole stay where they were made.
            views |= {value: views[it] for value, it in zip(op.inputs, made, strict=True)}
            if op.kind == "rope_append" and num_readers[op.inputs[0]] == 1:
                views[op.outputs[0]] = views[op.inputs[0]]  # queries turn where they lie
    for op in ops:
        if op.kind in PREPARED_BY_READERS:
            continue  # written as prepared activations only
        for output in op.outputs:
            if output not in views:
                stride = padded(widths[output])
                views[output] = View(output, 0, widths[output], stride)
    return views


def _side_by_side(op: Op, values: Sequence[str], widths: Mapping[str, int]) -> dict[str, View]:
    if len(set(values)) < len(values):
        raise UnsupportedModelError(
            f"{op.name} reads one value twice; its values lie side by side and must be different"
        )
    columns = [0]
    for value in values:
        columns.append(columns[-1] + padded(widths[value]))
    return {
        value: View(values[0], column, widths[value], columns[-1])
        for value, column in zip(values, columns[:-1], strict=True)
    }
