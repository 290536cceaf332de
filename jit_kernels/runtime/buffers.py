"""Memory for operands: anonymous pages, aligned, zero until touched; knows nothing of kernels."""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

__all__ = ["aligned"]

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
