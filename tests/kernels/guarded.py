"""Operands against pages that may not be touched: one byte too far ends the process.

The rest of an operand's own pages is 0xFF, which reads as NaN, so that a kernel which strays on
the unguarded side computes something visibly wrong.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, TypeVar

import numpy as np

__all__ = ["guarded", "guarded_before"]

ScalarT = TypeVar("ScalarT", bound=np.generic)
_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(array: np.ndarray[Any, np.dtype[ScalarT]]) -> np.ndarray[Any, np.dtype[ScalarT]]:
    """A copy of `array` whose last byte is the last before a PROT_NONE page."""
    length = _whole_pages(array.nbytes)
    memory = _filled(length + _PAGE)
    copy = _placed(array, memory, length - array.nbytes)
    _forbid(memory, length)
    return copy


def guarded_before(array: np.ndarray[Any, np.dtype[ScalarT]]) -> np.ndarray[Any, np.dtype[ScalarT]]:
    """A copy of `array` whose first byte is the first after a PROT_NONE page."""
    memory = _filled(_PAGE + _whole_pages(array.nbytes))
    copy = _placed(array, memory, _PAGE)
    _forbid(memory, 0)
    return copy


def _whole_pages(num_bytes: int) -> int:
    return -(-max(num_bytes, 1) // _PAGE) * _PAGE


def _filled(num_bytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    np.frombuffer(memory, np.uint8)[:] = 0xFF
    return memory


def _placed(
    array: np.ndarray[Any, np.dtype[ScalarT]], memory: mmap.mmap, offset: int
) -> np.ndarray[Any, np.dtype[ScalarT]]:
    # The copy keeps the mapping alive, and the mapping goes with the copy.
    copy = np.ndarray(array.shape, array.dtype, buffer=memory, offset=offset)
    copy[...] = array
    return copy


def _forbid(memory: mmap.mmap, offset: int) -> None:
    """Make the page at `offset` untouchable."""
    start = np.frombuffer(memory, np.uint8).ctypes.data + offset
    if _LIBC.mprotect(start, _PAGE, _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect refused a guard page")
