"""Finds pages that hold a prompt's first tokens already; knows no request and no model.

    root = H(key, salt)     digest[i] = H(digest[i - 1], tokens of page i)     digest[i] ──▶ page

Two sequences share page i exactly when all tokens up to its end are the same under the same key and
salt. A page that is found has its tokens compared as well, so that nobody is ever handed another
prompt's keys and values. Pages belong to the `PagePool`, which keeps idle ones in the order of
their last use and takes them back when it needs them.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from dashinfer_lab.config import ntk_stage
from dashinfer_lab.errors import EngineError
from dashinfer_lab.kvcache.pool import PagePool

__all__ = ["PrefixCache", "PrefixChain", "PrefixKey"]

_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class PrefixKey:
    """All that changes keys and values beside the tokens.

    model: whose weights.  scheme: format the weights are stored in.  kv_format: format of the
    pages.  rotary_base: of positions.  adapter: weights added to the model's.
    ntk_length: length of prompts beyond which the base grows.
    """

    model: str
    scheme: str
    kv_format: str
    rotary_base: float
    adapter: str | None = None
    ntk_length: int | None = None

    def root(self, salt: str | None, prompt_length: int = 0) -> bytes:
        """The digest that every chain under this key and salt begins with, for such prompts."""
        words = [self.model, self.scheme, self.kv_format, self.rotary_base, self.adapter, salt]
        words.append(ntk_stage(prompt_length, self.ntk_length))
        return _digest(json.dumps(words).encode())


class PrefixChain:
    """The digests of one sequence's full pages, made as they are asked for.

    The sequence may grow; what it held never changes.
    """

    __slots__ = ("_digests", "_page_size", "_token_ids")

    def __init__(self, root: bytes, token_ids: Sequence[int], page_size: int) -> None:
        self._digests = [root]
        self._token_ids: Final = token_ids
        self._page_size: Final = page_size

    def tokens(self, index: int) -> bytes:
        """The tokens of a full page, as bytes."""
        begin = index * self._page_size
        return array("q", self._token_ids[begin : begin + self._page_size]).tobytes()

    def digest(self, index: int) -> bytes:
        """The digest of all tokens up to the end of a full page."""
        while len(self._digests) <= index + 1:
            parent = self._digests[-1]
            self._digests.append(_digest(parent, self.tokens(len(self._digests) - 1)))
        return self._digests[index + 1]


@dataclass(frozen=True, slots=True)
class _Entry:
    page: int
    tokens: bytes


class PrefixCache:
    """Remember which pages of `pool` hold which tokens; all calls come from one thread.

    ttl_seconds: how long a page that nobody uses is remembered; None is until it is needed.
    """

    def __init__(self, pool: PagePool, ttl_seconds: float | None = None) -> None:
        self.num_evicted = 0
        self._pool: Final = pool
        self._ttl_seconds: Final = ttl_seconds
        self._entries: Final[dict[bytes, _Entry]] = {}
        self._digests: Final[dict[int, bytes]] = {}
        pool.on_evict = self._evicted

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, chain: PrefixChain, num_tokens: int) -> list[int]:
        """Pages that hold the sequence's first tokens, none beyond `num_tokens`."""
        pages: list[int] = []
        for index in range(num_tokens // self._pool.page_size):
            entry = self._entries.get(chain.digest(index))
            if entry is None or entry.tokens != chain.tokens(index):
                break
            pages.append(entry.page)
        return pages

    def add(self, chain: PrefixChain, index: int, page: int) -> None:
        """Remember an owned page that holds the `index`-th full page; the first such page stays."""
        digest = chain.digest(index)
        if digest in self._entries or page in self._digests:
            return
        self._pool.keep(page)
        self._entries[digest] = _Entry(page, chain.tokens(index))
        self._digests[page] = digest

    def forget(self, page: int) -> None:
        """Remember a page no more; nothing if it was not remembered."""
        digest = self._digests.pop(page, None)
        if digest is not None:
            del self._entries[digest]
            self._pool.forget(page)

    def clear(self) -> None:
        """Remember nothing; pages in use stay with their owners."""
        for page in tuple(self._digests):
            self.forget(page)

    def expire(self, now_seconds: float) -> None:
        """Take the time, and forget what nobody has used for longer than the time to live."""
        self._pool.now_seconds = now_seconds
        if self._ttl_seconds is None:
            return
        for page, used_seconds in tuple(self._pool.idle_pages().items()):
            if now_seconds - used_seconds < self._ttl_seconds:
                return
            self.forget(page)

    def check_integrity(self) -> None:
        """Raise `EngineError` unless pages and digests name each other and each page is kept."""
        named = {entry.page: digest for digest, entry in self._entries.items()}
        if named != self._digests or len(named) != len(self._entries):
            raise EngineError("prefix cache is inconsistent: pages and digests disagree")
        for page in named:
            if self._pool.ref_count(page) == 0 and not self._pool.is_idle(page):
                raise EngineError(f"prefix cache is inconsistent: page {page} is blank")
        if not named.keys() >= set(self._pool.idle_pages()):
            raise EngineError("prefix cache is inconsistent: an idle page is not remembered")

    def _evicted(self, page: int) -> None:
        self.num_evicted += 1
        self.forget(page)

    def __repr__(self) -> str:
        return f"<PrefixCache {len(self)} pages, {self._pool.num_idle} of them idle>"


def _digest(*parts: bytes) -> bytes:
    return blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()
