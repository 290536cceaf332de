"""What a loaded model takes of memory, as a caller is told; knows no request."""

from __future__ import annotations

from dataclasses import dataclass

from dashinfer_lab.engine.runner import CompiledRunner, page_bytes

__all__ = ["MemoryReport", "memory_report"]


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes. Weights are mapped from the file; the cache is reserved and taken page by page.

    weight_bytes_per_token: weights that decoding one token reads.  kv_bytes_per_position: keys
    and values of one position, all layers.
    """

    weight_bytes: int
    weight_bytes_per_token: int
    kv_bytes: int
    kv_bytes_per_position: int
    arena_bytes: int


def memory_report(runner: CompiledRunner) -> MemoryReport:
    """Read what a runner holds."""
    use, plan = runner.memory_use, runner.plan
    return MemoryReport(
        weight_bytes=use.weight_bytes,
        weight_bytes_per_token=plan.weight_bytes_per_token,
        kv_bytes=use.kv_bytes,
        kv_bytes_per_position=page_bytes(plan) // runner.page_size,
        arena_bytes=use.arena_bytes + use.step_bytes,
    )
