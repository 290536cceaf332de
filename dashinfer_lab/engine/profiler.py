"""Profiles of a running model: what is recorded, when it stops, where it is saved.

Turns a plan into the facts that `profiling` knows: operations with their sizes, and a memory map.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dashinfer_lab.engine.runner import CompiledRunner, page_bytes
from dashinfer_lab.errors import EngineError
from dashinfer_lab.lower.plan import CacheOperand, PlannedOp, ProgramPlan
from dashinfer_lab.profiling import (
    ArenaBuffer,
    Capture,
    Machine,
    MemoryMap,
    OpProfile,
    ProfiledOp,
    ProfileRecorder,
    WeightTensor,
    require_savable,
)
from jit_kernels.kv_layout import PAGE_SIZE

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact
    from jit_kernels.bench import Roof

__all__ = ["Profiler", "memory_map", "profiled_ops"]

_LATEST_STEPS: Final = 4096
_ROOF_SECONDS: Final = 0.6
_LAYER = re.compile(r"\.(\d+)\.")


class Profiler:
    """Records steps of `runner`; with `always`, from the beginning, the latest of them.

    Recordings may overlap.
    """

    def __init__(
        self, runner: CompiledRunner, artifact: Artifact, threads: int, *, always: bool = False
    ) -> None:
        self._runner: Final = runner
        self._threads: Final = threads
        self._machine: Final = Machine(
            artifact.metadata.get("source") or artifact.directory.name,
            artifact.metadata.get("scheme", "?"),
            runner.program.pool.compiler.isa.name,
            threads,
        )
        self._artifact: Final = artifact
        self._standing = self._recorder(None, _LATEST_STEPS) if always else None
        if self._standing is not None:
            runner.start_recording(self._standing)

    def standing(self) -> OpProfile:
        """All steps since the model was loaded. Raises `EngineError` unless AS_PROFILE=ON."""
        if self._standing is None:
            raise EngineError(
                "steps are not profiled from the beginning: set AS_PROFILE=ON in the environment "
                "before the model is loaded, or call profile() or profiling()"
            )
        return OpProfile.of(self._standing)

    @contextmanager
    def recording(
        self, capture: Capture | None = None, save: str | Path | None = None
    ) -> Generator[ProfileRecorder]:
        """Record meanwhile; see `LLM.profiling`, also for what it raises."""
        if save is not None:
            require_savable(save)
        recorder = self._recorder(capture)
        self._runner.start_recording(recorder)
        try:
            yield recorder
        finally:
            self._runner.stop_recording(recorder)
        if recorder.missing is not None:
            raise EngineError(f"the capture is not complete: {recorder.missing}")
        if save is not None:
            OpProfile.of(recorder, self.measure_roof()).save(save)

    def measure_roof(self) -> Roof:
        """What this machine can do with as many threads; about a second."""
        from jit_kernels.bench import measure_roof

        compiler = self._runner.program.pool.compiler
        return measure_roof(self._threads, compiler, seconds=_ROOF_SECONDS)

    def _recorder(
        self, capture: Capture | None = None, max_steps: int | None = None
    ) -> ProfileRecorder:
        return ProfileRecorder(
            profiled_ops(self._runner.plan),
            machine=self._machine,
            memory=memory_map(self._runner, self._artifact),
            capture=capture,
            max_steps=max_steps,
        )


def profiled_ops(plan: ProgramPlan) -> list[ProfiledOp]:
    """The plan's operations with the numbers that their work depends on."""
    kv_bytes = page_bytes(plan) // PAGE_SIZE // plan.num_layers
    return [_profiled_op(op, kv_bytes) for op in plan.ops]


def _profiled_op(op: PlannedOp, kv_bytes_per_position: int) -> ProfiledOp:
    operands = op.operands.items()
    reads_cache = any(isinstance(operand, CacheOperand) for _, operand in operands)
    return ProfiledOp(
        kernel=op.kernel,
        name=op.name,
        layer=op.layer,
        rows=op.rows,
        constants=op.constants,
        numbers={name: value for name, value in operands if isinstance(value, int | float)},
        kv_bytes_per_position=kv_bytes_per_position if reads_cache else 0,
    )


def memory_map(runner: CompiledRunner, artifact: Artifact) -> MemoryMap:
    """Where weights, pages and buffers of a loaded model lie."""
    plan = runner.plan
    use = runner.memory_use
    return MemoryMap(
        weights=tuple(
            WeightTensor(name, _layer(name), tensor.num_bytes)
            for name, tensor in artifact.tensors.items()
        ),
        num_pages=runner.num_pages,
        page_bytes=page_bytes(plan),
        page_tokens=runner.page_size,
        arena=_arena(plan),
        arena_bytes=plan.arena_bytes,
        workspace_bytes=use.arena_bytes - plan.arena_bytes,
        step_bytes=use.step_bytes,
        num_ops=len(plan.ops),
    )


def _layer(name: str) -> int | None:
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def _arena(plan: ProgramPlan) -> tuple[ArenaBuffer, ...]:
    """Every buffer from the first operation that names it to the last."""
    lives: dict[str, tuple[int, int]] = {}
    for position, op in enumerate(plan.ops):
        for name in (*op.reads, *op.writes):
            lives[name] = (lives.get(name, (position, 0))[0], position)
    buffers = (plan.buffers[name] for name in lives)
    return tuple(ArenaBuffer(b.name, b.offset, b.num_bytes, *lives[b.name]) for b in buffers)
