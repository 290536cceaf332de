"""Liveness and placement: buffers whose lives do not meet share memory.

Life is counted in phases. A phase ends where every worker waits for every other: within one, a
slow worker may still read what a fast one has finished with, so no two buffers of a phase meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashinfer_lab.lower.plan import Buffer, PlannedOp

__all__ = ["place"]

_ALIGNMENT = 64


@dataclass(slots=True)
class _Life:
    """First and last phase of a piece of memory, shared by the buffers that alias it."""

    num_bytes: int
    first: int
    last: int
    names: list[str]


def place(ops: Sequence[PlannedOp], sizes: Mapping[str, int]) -> tuple[dict[str, Buffer], int]:
    """Offsets for all buffers, and the arena's size in bytes; largest first, lowest gap."""
    lives = _lives(ops, sizes)
    placed: list[tuple[_Life, int]] = []
    for life in sorted(lives, key=lambda life: (-life.num_bytes, life.first)):
        placed.append((life, _lowest_gap(life, placed)))
    buffers = {
        name: Buffer(name, sizes[name], offset) for life, offset in placed for name in life.names
    }
    total = max((offset + life.num_bytes for life, offset in placed), default=0)
    return buffers, total


def _lives(ops: Sequence[PlannedOp], sizes: Mapping[str, int]) -> list[_Life]:
    phase = 0
    by_name: dict[str, _Life] = {}
    for op in ops:
        for name in (*op.reads, *op.writes):
            if name not in by_name:
                aliased = by_name.get(op.alias) if op.alias and name in op.writes else None
                if aliased is None:
                    by_name[name] = _Life(_aligned(sizes[name]), phase, phase, [name])
                else:
                    aliased.names.append(name)
                    aliased.num_bytes = max(aliased.num_bytes, _aligned(sizes[name]))
                    by_name[name] = aliased
            by_name[name].last = phase
        phase += op.barrier == "always"
    return list({id(life): life for life in by_name.values()}.values())


def _lowest_gap(life: _Life, placed: Sequence[tuple[_Life, int]]) -> int:
    taken = sorted(
        (offset, offset + other.num_bytes)
        for other, offset in placed
        if other.first <= life.last and life.first <= other.last
    )
    offset = 0
    for begin, end in taken:
        if offset + life.num_bytes <= begin:
            break
        offset = max(offset, end)
    return offset


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
