"""The list of kernel calls in the making, and the buffers they name; knows no operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.plan import (
    ArenaOperand,
    BarrierKind,
    CounterOperand,
    Operand,
    PlanLimits,
    PlannedOp,
    RowsOf,
    StepOperand,
    WorkspaceOperand,
)
from dashinfer_lab.lower.views import FLOAT_BYTES, View

__all__ = ["LOGITS", "WALKS", "Calls", "Constants"]

LOGITS = "logits"
WALKS = "walks"
"""The step array that lets a program walk several times: see `Program` and `advance`."""
Constants = Mapping[str, int | str | bool]


class Calls:
    """Planned calls in order, the size of every buffer in bytes, and where values lie."""

    def __init__(self, limits: PlanLimits, views: Mapping[str, View]) -> None:
        self.limits = limits
        self.views = views
        self.planned: list[PlannedOp] = []
        self.sizes: dict[str, int] = {}

    def place(self, view: View) -> Operand:
        """The operand for a view: logits leave the program, all else is in the arena."""
        if view.buffer == LOGITS:
            return StepOperand(LOGITS)
        return ArenaOperand(view.buffer, view.byte_offset)

    def claim(self, view: View) -> None:
        """Make room for a view that is about to be written."""
        if view.buffer != LOGITS:
            self.reserve(view.buffer, self.limits.max_tokens * view.stride * FLOAT_BYTES)

    def reserve(self, buffer: str, num_bytes: int) -> None:
        """Make room for a buffer. Raises ArtifactError for a name that has another size already."""
        if self.sizes.setdefault(buffer, num_bytes) != num_bytes:
            raise ArtifactError(
                f"two values of the graph are called {buffer!r:.200}; re-convert the model"
            )

    def write(
        self,
        kernel: str,
        constants: Constants,
        operands: Mapping[str, Operand],
        op: Op,
        view: View,
        *,
        reads: Sequence[str] = (),
        also_writes: Sequence[str] = (),
        alias: str | None = None,
    ) -> None:
        """A call that writes float rows and that everyone waits for.

        also_writes: other buffers, for which there is room.
        """
        self.claim(view)
        self.add(
            kernel,
            constants,
            {**operands, "out": self.place(view), "out_stride": view.stride},
            op.name,
            op.layer,
            rows=op.rows,
            reads=reads,
            writes=(*also_writes, *(() if view.buffer == LOGITS else (view.buffer,))),
            alias=alias,
        )

    def add(
        self,
        kernel: str,
        constants: Constants,
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
        """Append a call; a kernel takes of `operands` those it has parameters for."""
        everywhere: dict[str, Operand] = {
            "rows": StepOperand(rows),
            "counter": CounterOperand(),
            "workspace": WorkspaceOperand(),
        }
        self.planned.append(
            PlannedOp(
                kernel=kernel,
                constants=dict(constants),
                operands={**everywhere, **operands},
                rows=rows,
                barrier=barrier,
                name=name,
                layer=layer,
                reads=tuple(reads),
                writes=tuple(writes),
                alias=alias,
            )
        )
