"""What lies in the cache, and how it is removed; knows nothing of how it came there."""

from __future__ import annotations

from dashinfer_lab.cache.entries import KINDS, CacheEntry, Usage, list_entries, usage
from dashinfer_lab.cache.removal import Removed, clear, prune, remove
from dashinfer_lab.config import cache_root

__all__ = [
    "KINDS",
    "CacheEntry",
    "Removed",
    "Usage",
    "cache_root",
    "clear",
    "list_entries",
    "prune",
    "remove",
    "usage",
]
