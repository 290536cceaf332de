"""The pages of one sequence, in order; does not know which tokens they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dashinfer_lab.kvcache.pool import PagePool

__all__ = ["PageTable"]


class PageTable:
    """Map positions of one sequence to pages: p lies in the (p // page_size)-th page."""

    __slots__ = ("_pages", "_pool")

    def __init__(self, pool: PagePool, shared: Iterable[int] = ()) -> None:
        """Begin with pages that others own or that are idle."""
        self._pool: Final = pool
        self._pages: list[int] = []
        for page in shared:
            pool.share(page)
            self._pages.append(page)

    @property
    def num_tokens_capacity(self) -> int:
        """Tokens the pages owned now can hold."""
        return len(self._pages) * self._pool.page_size

    def grow_to(self, num_tokens: int) -> bool:
        """Own enough pages for `num_tokens`; take nothing and say False where the pool cannot."""
        missing = self._pool.pages_for(num_tokens) - len(self._pages)
        if missing > self._pool.num_free:
            return False
        for _ in range(missing):
            self._pages.append(self._pool.allocate())
        return True

    def covering(self, num_tokens: int) -> tuple[int, ...]:
        """Pages of positions [0, num_tokens), for a kernel to read."""
        return tuple(self._pages[: self._pool.pages_for(num_tokens)])

    def page(self, index: int) -> int:
        """The page of positions [index * page_size, (index + 1) * page_size)."""
        return self._pages[index]

    def release(self) -> None:
        """Give all pages back; the last first, so that the next owner gets them in order."""
        while self._pages:
            self._pool.release(self._pages.pop())

    def __iter__(self) -> Iterator[int]:
        return iter(self._pages)

    def __len__(self) -> int:
        return len(self._pages)

    def __repr__(self) -> str:
        return f"<PageTable {self._pages}>"
