"""How much memory is free for a model, within what a container allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jit_kernels.runtime.topology import read_text

__all__ = ["available_bytes"]

_CGROUPS: Final = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
"""Limit, use and its parts, of version 2 and of version 1; no limit is a word, or a huge number."""


def available_bytes(read: Callable[[str], str | None] = read_text) -> int:
    """Return the bytes that can be taken without pushing others out.

    read: gives a file's text, None where there is none.
    """
    import psutil

    available = psutil.virtual_memory().available
    for limit_file, used_file, parts_file in _CGROUPS:
        limit, used = ((read(file) or "").strip() for file in (limit_file, used_file))
        if limit.isdigit() and used.isdigit():
            kept = _files_kept(read(parts_file) or "")
            available = min(available, max(0, int(limit) - int(used) + kept))
    return available


def _files_kept(parts: str) -> int:
    """Bytes counted as used that only keep what files hold, and go when others need the room."""
    sizes = dict(line.split(maxsplit=1) for line in parts.splitlines() if " " in line)
    return int(sizes.get("total_inactive_file", sizes.get("inactive_file", "0")))
