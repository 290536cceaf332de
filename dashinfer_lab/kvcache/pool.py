"""A fixed set of cache pages, lent out and counted; does not know requests, tokens or memory.

    page      | 0    | 1     | 2    | 3     | 4
    ref count | 0    | 1     | 0    | 2     | 1
    owner     | free | table | free | 2 of  | table
                                      them
A page is on the free list exactly when its count is 0. Shared pages are read-only by agreement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from dashinfer_lab.errors import ConfigError, EngineError

__all__ = ["PAGE_SIZE", "PagePool"]

PAGE_SIZE: Final = 32
"""Tokens a page holds; attention's 128-key segments are whole pages."""


class PagePool:
    """Lend `num_pages` pages of `page_size` tokens; every operation is O(1)."""

    __slots__ = ("_free", "_ref_counts", "num_pages", "page_size")

    def __init__(self, num_pages: int, page_size: int = PAGE_SIZE) -> None:
        if num_pages < 1 or page_size < 1:
            raise ConfigError(
                f"a page pool needs at least one page of one token, "
                f"not {num_pages} pages of {page_size}"
            )
        self.num_pages: Final = num_pages
        self.page_size: Final = page_size
        self._ref_counts = [0] * num_pages
        # A stack: the page freed last is the one most likely still in the CPU's cache.
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Pages nobody owns."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Pages somebody owns."""
        return self.num_pages - len(self._free)

    def pages_for(self, num_tokens: int) -> int:
        """Count the pages that `num_tokens` tokens fill or begin."""
        return -(-num_tokens // self.page_size)

    def allocate(self) -> int:
        """Take one free page, with a count of 1."""
        if not self._free:
            raise EngineError(f"all {self.num_pages} pages are in use; ask `num_free` first")
        page = self._free.pop()
        self._ref_counts[page] = 1
        return page

    def share(self, page: int) -> None:
        """Add an owner to a page that has one."""
        if self.ref_count(page) == 0:
            raise EngineError(f"page {page} is free and cannot be shared")
        self._ref_counts[page] += 1

    def release(self, page: int) -> None:
        """Take one owner away; the last one frees the page."""
        if self.ref_count(page) == 0:
            raise EngineError(f"page {page} is free already")
        self._ref_counts[page] -= 1
        if self._ref_counts[page] == 0:
            self._free.append(page)

    def ref_count(self, page: int) -> int:
        """Owners of a page."""
        if not 0 <= page < self.num_pages:
            raise EngineError(f"page {page} is not one of 0..{self.num_pages - 1}")
        return self._ref_counts[page]

    def check_integrity(self, owners: Iterable[Iterable[int]] | None = None) -> None:
        """Raise `EngineError` unless every page is either free or owned and all counts agree.

        `owners` (each one's pages), where given, must account for every count.
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise EngineError("page pool is inconsistent: a page is on the free list twice")
        for page, count in enumerate(self._ref_counts):
            if count < 0 or (count == 0) != (page in free):
                raise EngineError(
                    f"page pool is inconsistent: page {page} has {count} owners and is "
                    f"{'on' if page in free else 'not on'} the free list"
                )
        if owners is not None:
            self._check_owners(owners)

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
