"""A fixed set of cache pages, lent out and counted; does not know requests, tokens or memory.

    page      | 0     | 1     | 2    | 3     | 4
    ref count | 0     | 1     | 0    | 2     | 1
    kept      | no    | no    | yes  | yes   | no
    state     | blank | owned | idle | owned | owned
A kept page whose last owner leaves is idle: what it holds may be asked for again, until the page is
needed. Blank and idle pages are free; where none is blank, the one that is idle longest is taken.
Shared pages are read-only by agreement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dashinfer_lab.errors import ConfigError, EngineError
from jit_kernels.kv_layout import PAGE_SIZE

__all__ = ["PagePool"]


class PagePool:
    """Lend `num_pages` pages of `page_size` tokens; every operation is O(1)."""

    __slots__ = (
        "_blank",
        "_idle",
        "_kept",
        "_ref_counts",
        "now_seconds",
        "num_pages",
        "on_evict",
        "page_size",
    )

    def __init__(self, num_pages: int, page_size: int = PAGE_SIZE) -> None:
        if num_pages < 1 or page_size < 1:
            raise ConfigError(
                f"a page pool needs at least one page of one token, "
                f"not {num_pages} pages of {page_size}"
            )
        self.num_pages: Final = num_pages
        self.page_size: Final = page_size
        # Told from outside: when a page that falls idle was last used.
        self.now_seconds = 0.0
        # Told of an idle page that is about to hold something else.
        self.on_evict: Callable[[int], None] = lambda page: None
        self._ref_counts = [0] * num_pages
        # A stack: the page freed last is the one most likely still in the CPU's cache.
        self._blank = list(range(num_pages - 1, -1, -1))
        self._kept: set[int] = set()
        # In the order of their last use, with its time.
        self._idle: dict[int, float] = {}

    @property
    def num_free(self) -> int:
        """Pages nobody owns."""
        return len(self._blank) + len(self._idle)

    @property
    def num_idle(self) -> int:
        """Free pages whose contents are kept."""
        return len(self._idle)

    @property
    def num_used(self) -> int:
        """Pages somebody owns."""
        return self.num_pages - self.num_free

    def pages_for(self, num_tokens: int) -> int:
        """Count the pages that `num_tokens` tokens fill or begin."""
        return -(-num_tokens // self.page_size)

    def allocate(self) -> int:
        """Take one free page, with a count of 1; an idle one only where none is blank."""
        if not self._blank:
            self._evict_one()
        page = self._blank.pop()
        self._ref_counts[page] = 1
        return page

    def share(self, page: int) -> None:
        """Add an owner to a page that is owned or idle."""
        if self.ref_count(page) == 0:
            if page not in self._idle:
                raise EngineError(f"page {page} is free and cannot be shared")
            del self._idle[page]
        self._ref_counts[page] += 1

    def release(self, page: int) -> None:
        """Take one owner away; the last one frees the page."""
        if self.ref_count(page) == 0:
            raise EngineError(f"page {page} is free already")
        self._ref_counts[page] -= 1
        if self._ref_counts[page] == 0:
            if page in self._kept:
                self._idle[page] = self.now_seconds
            else:
                self._blank.append(page)

    def keep(self, page: int) -> None:
        """Let an owned page be idle, not blank, once its last owner leaves."""
        if self.ref_count(page) == 0:
            raise EngineError(f"page {page} is free: what it holds cannot be kept")
        self._kept.add(page)

    def forget(self, page: int) -> None:
        """Let a page's contents go; an idle one is blank at once."""
        self._kept.discard(page)
        if page in self._idle:
            del self._idle[page]
            self._blank.append(page)

    def idle_pages(self) -> Mapping[int, float]:
        """Free pages whose contents are kept, with the time of their last use, oldest first."""
        return self._idle

    def is_idle(self, page: int) -> bool:
        """Whether nobody owns a page whose contents are kept."""
        return page in self._idle

    def ref_count(self, page: int) -> int:
        """Owners of a page."""
        if not 0 <= page < self.num_pages:
            raise EngineError(f"page {page} is not one of 0..{self.num_pages - 1}")
        return self._ref_counts[page]

    def check_integrity(self, owners: Iterable[Iterable[int]] | None = None) -> None:
        """Raise `EngineError` unless every page is either free or owned and all counts agree.

        `owners` (each one's pages), where given, must account for every count.
        """
        free = set(self._blank).union(self._idle)
        if len(free) != self.num_free:
            raise EngineError("page pool is inconsistent: a page is on the free list twice")
        if not self._kept.issuperset(self._idle) or self._kept.intersection(self._blank):
            raise EngineError("page pool is inconsistent: idle pages are not those that are kept")
        for page, count in enumerate(self._ref_counts):
            if count < 0 or (count == 0) != (page in free):
                raise EngineError(
                    f"page pool is inconsistent: page {page} has {count} owners and is "
                    f"{'on' if page in free else 'not on'} the free list"
                )
        if owners is not None:
            self._check_owners(owners)

    def _evict_one(self) -> None:
        longest = next(iter(self._idle), None)
        if longest is None:
            raise EngineError(f"all {self.num_pages} pages are in use; ask `num_free` first")
        self.on_evict(longest)
        self.forget(longest)

    def _check_owners(self, owners: Iterable[Iterable[int]]) -> None:
        held: Counter[int] = Counter()
        for owner in owners:
            held.update(owner)
        for page, count in enumerate(self._ref_counts):
            if held.pop(page, 0) != count:
                raise EngineError(
                    f"page pool is inconsistent: page {page} is counted {count} times "
                    f"but its owners are others"
                )
        if held:
            raise EngineError(f"page pool is inconsistent: no such pages as {sorted(held)}")

    def __repr__(self) -> str:
        return (
            f"<PagePool {self.num_free} of {self.num_pages} pages free, "
            f"{self.page_size} tokens each>"
        )
