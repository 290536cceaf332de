"""The memory of the key/value cache, taken from the system a little before it is needed.

The system gives memory where it is first touched, and that takes: for a page of all layers as long
as for a token or two. Requests that decode side by side begin their pages in the same step, which
would wait for all of them, and where memory comes 2 MB at a time, every layer's comes at once. So
each step touches some of what the next ones will use, and while nobody asks, more is touched than a
prompt and its answer may need. Does not know who owns a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine.batch import Chunk
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.runtime.buffers import HUGE_PAGE_BYTES, aligned, prefer_huge_pages

__all__ = ["CacheMemory"]

_SMALL_PAGES_BYTES: Final = 64 << 20
"""The first of a layer's memory. A page there costs what it holds; 2 MB of each layer for the first
page behind cost a step ten times its length where the host has to find them."""
_SECONDS_A_STEP: Final = 1e-3
_AT_REST_BYTES: Final = 32 << 20
_SYSTEM_PAGE_BYTES: Final = 4096


class CacheMemory:
    """Pages of every layer, zeros at first: `pages` is uint8 [layers][pages][bytes of a page]."""

    def __init__(self, num_layers: int, num_pages: int, layer_bytes: int) -> None:
        self.pages: Final[NDArray[np.uint8]] = aligned(
            (num_layers, num_pages, layer_bytes), np.uint8
        )
        self._layers = [layer.reshape(-1) for layer in self.pages]
        total = num_pages * layer_bytes
        num_small = min(_SMALL_PAGES_BYTES // layer_bytes, num_pages)
        small = num_small * layer_bytes
        for layer in self._layers:
            prefer_huge_pages(layer[small:])
        self._page_bytes = layer_bytes
        self._end_of_used = 0
        self._parts = (
            _Part(0, small, layer_bytes, 0),
            _Part(small, total, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES),
        )

    def copy(self, source: int, target: int) -> None:
        """Write what one page holds into another, all layers."""
        self.pages[:, target] = self.pages[:, source]
        self._end_of_used = max(self._end_of_used, target + 1)

    def touch_ahead(self, chunks: Sequence[Chunk]) -> None:
        """Touch some of what the steps after that of `chunks` will use, for a millisecond or so."""
        last = max(
            (max(c.page_table[c.start // PAGE_SIZE :], default=-1) for c in chunks), default=-1
        )
        self._end_of_used = max(self._end_of_used, last + 1)
        self._touch((len(chunks) + 1) * self._page_bytes)

    def touch_at_rest(self) -> bool:
        """Touch some of what comes after what is used, for a millisecond; whether any is left.

        32 MB in all, and every layer's next 2 MB where memory comes so.
        """
        return not self._touch(_AT_REST_BYTES // len(self._layers))

    def _touch(self, ahead_bytes: int) -> bool:
        """Whether all layers' bytes beyond what is used were touched before the time was over."""
        used = self._end_of_used * self._page_bytes
        deadline = perf_counter() + _SECONDS_A_STEP
        for part in self._parts:
            part.skip_to(used, len(self._layers))
            while part.touch_one(used + ahead_bytes, self._layers):
                if perf_counter() > deadline:
                    return False
        return True


@dataclass(slots=True)
class _Part:
    """Bytes `begin` .. `end` of every layer, touched block by block, layer by layer.

    lead: bytes before a block at which its first layer is touched; the others follow on the way.
    """

    begin: int
    end: int
    block_bytes: int
    lead: int
    _num_touched: int = 0

    def skip_to(self, position: int, num_layers: int) -> None:
        """Leave out the blocks before `position`, which somebody has touched."""
        self._num_touched = max(self._num_touched, self._blocks_until(position) * num_layers)

    def touch_one(self, position: int, layers: Sequence[NDArray[np.uint8]]) -> bool:
        """Touch a layer's next block, if it is due at `position`; whether it was."""
        reached = min(max(position + self.lead - self.begin, 0), self.end - self.begin)
        if self._num_touched >= reached * len(layers) // self.block_bytes:
            return False
        block, layer = divmod(self._num_touched, len(layers))
        begin = self.begin + block * self.block_bytes
        end = min(begin + self.block_bytes, self.end)
        # Adding nothing changes nothing, even where somebody should have written there.
        layers[layer][begin:end:_SYSTEM_PAGE_BYTES] += 0
        self._num_touched += 1
        return True

    def _blocks_until(self, position: int) -> int:
        return max(min(position, self.end) - self.begin, 0) // self.block_bytes
