"""Memory for operands: anonymous pages, aligned, zero until touched; knows nothing of kernels."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

__all__ = ["aligned", "give_back"]

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
    if huge_pages:
        with suppress(OSError):  # a system without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray(shape, dtype, buffer=memory)


def give_back(array: np.ndarray[Any, Any]) -> None:
    """Return the pages of an `aligned` array to the system; it reads as zeros from now on.

    For what is still referred to and will not be used. Nothing for arrays of other memory.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)
