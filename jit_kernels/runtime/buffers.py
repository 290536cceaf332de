"""Memory for operands: anonymous pages, aligned, zero until touched; knows nothing of kernels."""

from __future__ import annotations

import math
import mmap
from typing import Any, TypeVar

import numpy as np

__all__ = ["aligned"]

ScalarT = TypeVar("ScalarT", bound=np.generic)


def aligned(
    shape: int | tuple[int, ...], dtype: type[ScalarT]
) -> np.ndarray[Any, np.dtype[ScalarT]]:
    """Zeros that begin on a page (so on 64 bytes) and take no memory until they are touched.

    The pages go back to the system when the last view of the array is collected.
    """
    count = shape if isinstance(shape, int) else math.prod(shape)
    num_bytes = count * np.dtype(dtype).itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, max(num_bytes, 1), flags=flags)
    return np.ndarray(shape, dtype, buffer=memory)
