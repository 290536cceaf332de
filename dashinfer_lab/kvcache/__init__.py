"""Pages of the key/value cache: who owns which page; knows nothing of what is stored in them."""

from __future__ import annotations

from dashinfer_lab.kvcache.pool import PagePool
from dashinfer_lab.kvcache.prefix import PrefixCache, PrefixChain, PrefixKey
from dashinfer_lab.kvcache.table import PageTable

__all__ = ["PagePool", "PageTable", "PrefixCache", "PrefixChain", "PrefixKey"]
