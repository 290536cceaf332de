"""What a request need not compute, because pages hold it already; knows no schedule.

A choice of the same prompt takes its leader's pages. It writes into the last one, so it gets a copy
of that. Others take full pages from the prefix cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dashinfer_lab.engine.request import Request, RequestState
from dashinfer_lab.kvcache import PagePool, PageTable, PrefixCache, PrefixChain, PrefixKey

__all__ = ["Found", "PageSharing"]


@dataclass(frozen=True, slots=True)
class Found:
    """Pages to share, a page to copy behind them, and the tokens they hold together."""

    pages: tuple[int, ...] = ()
    copied: int | None = None
    num_tokens: int = 0


class PageSharing:
    """Find and take what is computed. Without a key nothing is shared, without a cache only copies.

    copy_page: writes the contents of one page into another.
    """

    def __init__(
        self,
        pool: PagePool,
        key: PrefixKey | None,
        cache: PrefixCache | None,
        copy_page: Callable[[int, int], None],
    ) -> None:
        self._pool: Final = pool
        self._key: Final = key
        self._cache: Final = cache if key is not None else None
        self._copy_page: Final = copy_page

    def awaits_leader(self, request: Request) -> bool:
        """Whether another choice is about to compute this one's prompt."""
        leader = request.leader
        return (
            self._key is not None
            and leader is not None
            and leader.state in (RequestState.QUEUED, RequestState.PREFILL)
        )

    def find(self, request: Request) -> Found:
        """What can be taken now; nothing is taken yet."""
        found = Found()
        if self._cache is not None:
            pages = self._cache.find(self._chain(request), request.num_skippable)
            found = Found(tuple(pages), None, len(pages) * self._pool.page_size)
        of_leader = self._of_leader(request)
        return of_leader if of_leader.num_tokens > found.num_tokens else found

    def pages_needed(self, request: Request, found: Found) -> int:
        """Free pages that taking it and growing to the known tokens would use up."""
        revived = sum(self._pool.ref_count(page) == 0 for page in found.pages)
        return self._pool.pages_for(request.num_tokens) - len(found.pages) + revived

    def admit(self, request: Request, found: Found) -> None:
        """Give a request its pages."""
        request.admit(PageTable(self._pool, found.pages), found.num_tokens)
        if found.copied is not None and request.pages is not None:
            self._copy_page(found.copied, request.pages.page(len(found.pages)))

    def keep(self, request: Request) -> None:
        """Remember the full pages of computed tokens."""
        if self._cache is None or request.pages is None:
            return
        num_full = request.num_computed // self._pool.page_size
        for index in range(request.num_pages_kept, num_full):
            self._cache.add(self._chain(request), index, request.pages.page(index))
        request.num_pages_kept = num_full

    def forget(self, request: Request) -> None:
        """Remember a request's pages no more: what they hold is in doubt."""
        if self._cache is not None:
            for page in request.pages or ():
                self._cache.forget(page)

    def _of_leader(self, request: Request) -> Found:
        leader = request.leader
        if self._key is None or leader is None or leader.pages is None:
            return Found()
        same = min(request.num_leading, request.num_skippable, leader.num_computed)
        num_full, rest = divmod(same, self._pool.page_size)
        pages = tuple(leader.pages)[:num_full]
        return Found(pages, leader.pages.page(num_full) if rest else None, same)

    def _chain(self, request: Request) -> PrefixChain:
        if request.chain is None:
            assert self._key is not None
            root = self._key.root(request.options.cache_salt, request.prompt_length)
            request.chain = PrefixChain(root, request.token_ids, self._pool.page_size)
        return request.chain
