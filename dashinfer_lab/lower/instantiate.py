"""A plan and memory to a runnable program: names become kernels, operands become addresses.

Everything a program points into (tensors, arena, step arrays, cache) is kept alive by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.lower.calls import WALKS
from dashinfer_lab.lower.kernel_table import kernel_table
from dashinfer_lab.lower.plan import (
    AnglesOperand,
    ArenaOperand,
    CacheOperand,
    CounterOperand,
    Operand,
    PlannedOp,
    ProgramPlan,
    RotaryOperand,
    StepOperand,
    TensorOperand,
    WorkspaceOperand,
)
from jit_kernels.kernels.attention_key_bias import segment_angles
from jit_kernels.runtime.buffers import aligned, give_back
from jit_kernels.runtime.program import CLAIM_COUNTER, Barrier, Operation, Program

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact
    from jit_kernels.runtime.threads import Pool

__all__ = ["Memory", "bound_operations", "instantiate"]

_BARRIERS = {"always": Barrier.ALWAYS, "shared": Barrier.SHARED}
_NOTHING = np.zeros(64, np.uint8)


class Memory:
    """What a program's operands point into: arena, workspace, cache pages, the step's arrays.

    first_rotary_row: row of position 0 in the rotary tables.
    """

    def __init__(
        self,
        plan: ProgramPlan,
        artifact: Artifact,
        step: Mapping[str, NDArray[Any]],
        cache: NDArray[np.uint8],
        first_rotary_row: int = 0,
    ) -> None:
        self._plan = plan
        self._artifact = artifact
        self._first_rotary_row = first_rotary_row
        self._step = step
        self._cache = cache
        self._arena = aligned(max(plan.arena_bytes, 1), np.uint8)
        self._workspace = aligned((plan.limits.num_threads, plan.workspace_bytes), np.uint8)
        self._joined: dict[TensorOperand | AnglesOperand, NDArray[np.float32]] = {}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of arena and workspaces."""
        return self._arena.nbytes + self._workspace.nbytes

    def give_back(self) -> None:
        """Return what only computing needs to the system; the program may not run any more."""
        for array in (self._cache, self._arena, self._workspace, *self._joined.values()):
            give_back(array)
        for array in self._step.values():
            give_back(array)
        self._artifact.let_go()

    def resolve(self, operand: Operand) -> Any:
        """The number or array that stands for `operand`."""
        if isinstance(operand, int | float):
            return operand
        if isinstance(operand, TensorOperand):
            return self._tensor(operand)
        if isinstance(operand, RotaryOperand):
            return self._rotary(operand.name)
        if isinstance(operand, AnglesOperand):
            return self._angles(operand)
        if isinstance(operand, ArenaOperand):
            buffer = self._plan.buffers[operand.buffer]
            return self._arena[buffer.offset + operand.byte_offset :]
        if isinstance(operand, StepOperand):
            return self._step[operand.name]
        if isinstance(operand, CacheOperand):
            return self._cache[operand.layer]
        if isinstance(operand, CounterOperand):
            return CLAIM_COUNTER
        return self._workspace if isinstance(operand, WorkspaceOperand) else _NOTHING

    def _tensor(self, operand: TensorOperand) -> NDArray[Any]:
        if not operand.padded_lengths:
            return self._artifact.tensor(operand.names[0])
        if operand not in self._joined:
            joined = aligned(sum(operand.padded_lengths), np.float32)
            position = 0
            for name, length in zip(operand.names, operand.padded_lengths, strict=True):
                if name:
                    tensor = self._artifact.tensor(name)
                    joined[position : position + tensor.size] = tensor
                position += length
            self._joined[operand] = joined
        return self._joined[operand]

    def _rotary(self, name: str) -> NDArray[np.float32]:
        return self._artifact.tensor(name)[self._first_rotary_row :]

    def _angles(self, operand: AnglesOperand) -> NDArray[np.float32]:
        if operand not in self._joined:
            cos, sin = self._rotary(operand.cos), self._rotary(operand.sin)
            angles = segment_angles(cos, sin)
            self._joined[operand] = aligned(angles.shape, np.float32)
            self._joined[operand][:] = angles
        return self._joined[operand]


def instantiate(
    plan: ProgramPlan, memory: Memory, pool: Pool, *, chaos_seed: int | None = None
) -> Program:
    """Compile the plan's kernels and bind their operands."""
    operations = bound_operations(plan, memory, pool)
    repeat = memory.resolve(StepOperand(WALKS))
    return Program(pool, operations, chaos_seed=chaos_seed, repeat=repeat)


def bound_operations(plan: ProgramPlan, memory: Memory, pool: Pool) -> list[Operation]:
    """The plan's calls, compiled, with operands in `memory`."""
    return [_operation(op, plan, memory, pool) for op in plan.ops]


def _operation(op: PlannedOp, plan: ProgramPlan, memory: Memory, pool: Pool) -> Operation:
    kernel = kernel_table()[op.kernel]
    known = {"row_tile": plan.limits.row_tile, **op.constants}
    constants = {name: value for name, value in known.items() if name in kernel.constants}
    compiled = kernel.specialise(**constants).compile(pool.compiler)
    sizes: dict[str, Operand] = {
        "workspace_bytes": plan.workspace_bytes,
        "workspace_floats_per_worker": plan.workspace_bytes // 4,
    }
    operands = {**sizes, **op.operands}
    arguments = [memory.resolve(operands[p.name]) for p in kernel.parameters]
    return Operation(
        kernel=compiled,
        arguments=tuple(arguments),
        barrier=_BARRIERS[op.barrier],
        label=op.name,
        rows=memory.resolve(StepOperand(op.rows)),
    )
