"""How much memory is free for a model, within what a container allows."""

from __future__ import annotations

from typing import Final

__all__ = ["available_bytes"]

_CGROUPS: Final = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
"""Limit and use, of version 2 and of version 1; no limit is a word, or a huge number."""


def available_bytes() -> int:
    """Return the bytes that can be taken without pushing others out."""
    import psutil

    from jit_kernels.runtime.topology import read_text

    available = psutil.virtual_memory().available
    for files in _CGROUPS:
        limit, used = ((read_text(file) or "").strip() for file in files)
        if limit.isdigit() and used.isdigit():
            available = min(available, max(0, int(limit) - int(used)))
    return available
