"""The operations between an ONNX graph and kernels; data only, named values, no addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from dashinfer_lab.lower.plan import RowsOf
from dashinfer_lab.quantize import whole_panels

__all__ = [
    "GATED_UNITS",
    "PREPARED_BY_READERS",
    "Op",
    "OpKind",
    "Pass",
    "Weight",
    "consumers",
    "maker",
    "num_experts",
    "replaced",
]

OpKind = Literal[
    "embedding",
    "rmsnorm",
    "linear",
    "head_norm",
    "rotary",
    "attention",
    "swish",
    "gelu",
    "multiply",
    "experts",
    "gated",
    "add",
    "norm_add",
    "swiglu",
    "geglu",
    "rope_append",
    "paged_attention",
    "gather_rows",
]
GATED_UNITS: Final[Mapping[OpKind, OpKind]] = {"swish": "swiglu", "gelu": "geglu"}
"""Activations, and what activation(gate) * up becomes."""
PREPARED_BY_READERS: Final[tuple[OpKind, ...]] = ("rmsnorm", *GATED_UNITS.values())
"""What is written as its readers want it prepared, and nowhere as rows."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix W[k, n] in panels: the tensors that hold it, by name.

    Rows that meet integers are quantised to `activation_bits`: 16, or 8 (7 of them for u8).
    """

    panels: str
    format: Literal["f32", "bf16", "u8", "u4"]
    k: int
    n: int
    group_size: int = 0
    scale: str | None = None
    minimum: str | None = None
    activation_bits: int = 16


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: what it reads and makes by name, and its attributes.

    `layer` is the decoder layer it belongs to, None outside; `rows` are those that it computes.
    """

    kind: OpKind
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    layer: int | None = None
    rows: RowsOf = "num_tokens"

    def __getitem__(self, attribute: str) -> Any:
        return self.attributes[attribute]

    def with_attributes(self, **attributes: Any) -> Op:
        """The same operation with more attributes."""
        return replace(self, attributes={**self.attributes, **attributes})


Pass = Callable[[Sequence[Op]], list[Op]]


def consumers(ops: Sequence[Op], value: str) -> list[Op]:
    """The operations that read `value`."""
    return [op for op in ops if value in op.inputs]


def maker(ops: Sequence[Op], value: str) -> Op | None:
    """The operation that makes `value`; None for an input of the graph."""
    return next((op for op in ops if value in op.outputs), None)


def num_experts(op: Op) -> int:
    """How many experts' matrices lie side by side in the weights of an "experts" operation."""
    gate, _, down = op["weights"]
    return gate.n // whole_panels(down.k)


def replaced(ops: Sequence[Op], old: Sequence[Op], new: Op) -> list[Op]:
    """`ops` without `old`, and `new` where the last of them stood."""
    last = max(ops.index(op) for op in old)
    gone = {id(op) for op in old}
    kept: list[Op] = []
    for position, op in enumerate(ops):
        if position == last:
            kept.append(new)
        elif id(op) not in gone:
            kept.append(op)
    return kept
