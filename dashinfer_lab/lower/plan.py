"""A lowered program as data: kernels by name, operands by role, buffers by size; no addresses.

An operand is a number, or one of the small records below, which `instantiate` turns into an
address. Whatever a plan holds can be written to disk and used by another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jit_kernels.kv_layout import KvFormat

__all__ = [
    "AnglesOperand",
    "ArenaOperand",
    "BarrierKind",
    "Buffer",
    "CacheOperand",
    "CounterOperand",
    "NothingOperand",
    "Operand",
    "PlanLimits",
    "PlannedOp",
    "ProgramPlan",
    "RotaryOperand",
    "RowsOf",
    "StepOperand",
    "TensorOperand",
    "WorkspaceOperand",
]

RowsOf = Literal["num_tokens", "num_logit_rows"]
BarrierKind = Literal["always", "shared"]
Constant = int | str | bool


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Sizes a program is planned for: rows of a step, rows of logits, workers, rows of a strip.

    kv_format: of the cache's pages.
    """

    max_tokens: int
    max_logit_rows: int
    num_threads: int
    row_tile: int
    kv_format: KvFormat = "fp32"


@dataclass(frozen=True, slots=True)
class TensorOperand:
    """Tensors of the artifact: one as mapped, or several (float32) joined and padded to panels.

    Of those that are joined, the empty name stands for zeros.
    """

    names: tuple[str, ...]
    padded_lengths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RotaryOperand:
    """A table of cosine or sine by position, from the row of position 0 on."""

    name: str


@dataclass(frozen=True, slots=True)
class AnglesOperand:
    """The angles of a segment's keys, from tables of cosine and sine by position."""

    cos: str
    sin: str


@dataclass(frozen=True, slots=True)
class ArenaOperand:
    """A buffer of the arena, from `byte_offset` on."""

    buffer: str
    byte_offset: int = 0


@dataclass(frozen=True, slots=True)
class StepOperand:
    """An array of the step's inputs or outputs."""

    name: str


@dataclass(frozen=True, slots=True)
class CacheOperand:
    """The pages of one layer of the key/value cache."""

    layer: int


@dataclass(frozen=True, slots=True)
class CounterOperand:
    """The operation's own claim counter."""


@dataclass(frozen=True, slots=True)
class WorkspaceOperand:
    """Scratch memory, one part a worker."""


@dataclass(frozen=True, slots=True)
class NothingOperand:
    """An operand the specialisation does not use."""


Operand = (
    int
    | float
    | TensorOperand
    | RotaryOperand
    | AnglesOperand
    | ArenaOperand
    | StepOperand
    | CacheOperand
    | CounterOperand
    | WorkspaceOperand
    | NothingOperand
)


@dataclass(frozen=True, slots=True)
class PlannedOp:
    """One kernel call. `alias`: the buffer whose memory what it writes takes over in place."""

    kernel: str
    constants: Mapping[str, Constant]
    operands: Mapping[str, Operand]
    rows: RowsOf
    barrier: BarrierKind
    name: str
    layer: int | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of the arena: size and, once planned, offset in bytes."""

    name: str
    num_bytes: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """Everything about a program but addresses.

    `weight_bytes_per_token`: what decoding one token reads of weights.
    """

    ops: tuple[PlannedOp, ...]
    buffers: Mapping[str, Buffer]
    arena_bytes: int
    workspace_bytes: int
    limits: PlanLimits
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    logits_stride: int
    weight_bytes_per_token: int
