"""Memory for operands: anonymous pages, aligned, zero until touched; knows nothing of kernels."""

from __future__ import annotations

import ctypes
import math
import mmap
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

__all__ = ["HUGE_PAGE_BYTES", "aligned", "give_back", "give_back_freed", "prefer_huge_pages"]

HUGE_PAGE_BYTES = 2 << 20
"""What `prefer_huge_pages` takes at a time."""

ScalarT = TypeVar("ScalarT", bound=np.generic)


def aligned(
    shape: int | tuple[int, ...], dtype: type[ScalarT], *, huge_pages: bool = False
) -> np.ndarray[Any, np.dtype[ScalarT]]:
    """Zeros that begin on a page (so on 64 bytes) and take no memory until they are touched.

    The pages go back to the system when the last view of the array is collected. With
    `huge_pages`, memory is taken 2 MB at a time where the system allows it.
    """
    count = shape if isinstance(shape, int) else math.prod(shape)
    num_bytes = count * np.dtype(dtype).itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
    array = np.ndarray(shape, dtype, buffer=memory)
    if huge_pages:
        _advise_huge_pages(memory, 0, len(memory))
    return array


def prefer_huge_pages(array: np.ndarray[Any, Any]) -> None:
    """Take the memory of a contiguous part of an `aligned` array 2 MB at a time, where allowed.

    What shares 2 MB with the array's surroundings stays as it is. Nothing for other memory.
    """
    memory = _mapping(array)
    if memory is not None:
        start = array.ctypes.data
        first = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
        end = (start + array.nbytes) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        if first < end:
            begin = np.frombuffer(memory, np.uint8).ctypes.data
            _advise_huge_pages(memory, first - begin, end - first)


def _advise_huge_pages(memory: mmap.mmap, begin: int, length: int) -> None:
    with suppress(OSError):  # a system without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE, begin, length)


def give_back(array: np.ndarray[Any, Any]) -> None:
    """Return the pages of an `aligned` array to the system; it reads as zeros from now on.

    For what is still referred to and will not be used. Nothing for arrays of other memory.
    """
    memory = _mapping(array)
    if memory is not None:
        memory.madvise(mmap.MADV_DONTNEED)


def _mapping(array: np.ndarray[Any, Any]) -> mmap.mmap | None:
    """The memory of an `aligned` array or of a view of one."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, mmap.mmap) else None


def give_back_freed() -> None:
    """Return to the system what threads have freed and the C library keeps, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others have none
    if trim is not None:
        trim(0)
