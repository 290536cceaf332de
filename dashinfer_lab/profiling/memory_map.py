"""What lies where in memory: weights by layer, pages of keys and values, the arena's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ArenaBuffer", "MemoryMap", "WeightTensor"]


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """A tensor as stored; layer is None outside the layers."""

    name: str
    layer: int | None
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ArenaBuffer:
    """Bytes `offset` to `offset + num_bytes` of the arena, from one operation to another.

    Operations are counted from 0. Buffers may share bytes where their times do not overlap, or
    where one takes over another's in place.
    """

    name: str
    offset: int
    num_bytes: int
    first_op: int
    last_op: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Bytes of everything a loaded model holds; `page_bytes` are those of all layers."""

    weights: tuple[WeightTensor, ...]
    num_pages: int
    page_bytes: int
    page_tokens: int
    arena: tuple[ArenaBuffer, ...]
    arena_bytes: int
    workspace_bytes: int
    step_bytes: int
    num_ops: int

    @property
    def weight_bytes(self) -> int:
        """All weights, mapped from the file."""
        return sum(tensor.num_bytes for tensor in self.weights)

    @property
    def kv_bytes(self) -> int:
        """All pages; a page takes memory once a request has used it."""
        return self.num_pages * self.page_bytes

    @property
    def buffer_bytes(self) -> int:
        """What the arena's buffers would take if no two shared memory."""
        return sum(buffer.num_bytes for buffer in self.arena)

    def parts(self) -> Mapping[str, int]:
        """Bytes by kind: weights, kv, arena, workspaces, step."""
        return {
            "weights": self.weight_bytes,
            "kv": self.kv_bytes,
            "arena": self.arena_bytes,
            "workspaces": self.workspace_bytes,
            "step": self.step_bytes,
        }

    def weights_by_layer(self) -> dict[int | None, int]:
        """Bytes of each layer's weights, and of those outside under None."""
        sums: dict[int | None, int] = {}
        for tensor in self.weights:
            sums[tensor.layer] = sums.get(tensor.layer, 0) + tensor.num_bytes
        return sums

    def as_dict(self) -> dict[str, Any]:
        """Every figure, for JSON."""
        return {
            "bytes": dict(self.parts()),
            "pages": {
                "count": self.num_pages,
                "bytes": self.page_bytes,
                "tokens": self.page_tokens,
            },
            "weights": [
                {"name": t.name, "layer": t.layer, "bytes": t.num_bytes} for t in self.weights
            ],
            "arena": [
                {
                    "name": b.name,
                    "offset": b.offset,
                    "bytes": b.num_bytes,
                    "first_op": b.first_op,
                    "last_op": b.last_op,
                }
                for b in self.arena
            ],
        }
