"""The cache's memory is taken a little ahead, and what it holds is left alone."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab.engine import cache_memory
from dashinfer_lab.engine.batch import Chunk
from dashinfer_lab.engine.cache_memory import CacheMemory
from jit_kernels.kv_layout import PAGE_SIZE

PAGE_BYTES = 16 << 10


def chunk(*pages: int, start: int = 0) -> Chunk:
    """A chunk of one token at the end of `pages`."""
    return Chunk(0, [1], start or len(pages) * PAGE_SIZE - 1, pages, "last", None)


def resident(array: np.ndarray) -> int:
    """Bytes of an array on pages of its own that memory backs."""
    marks = np.zeros(-(-array.nbytes // 4096), np.uint8)
    begin, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
    assert ctypes.CDLL(None).mincore(begin, size, ctypes.c_void_p(marks.ctypes.data)) == 0
    return int((marks & 1).sum()) * 4096


def memory_comes_in_huge_pages() -> bool:
    """Whether the system takes 2 MB at a time where nobody asked."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[always]" in setting.read_text(encoding="ascii")


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_memory, "_SECONDS_A_STEP", 60.0)


def test_pages_that_come_next_are_backed_by_memory() -> None:
    memory = CacheMemory(4, 64, PAGE_BYTES)
    assert resident(memory.pages) == 0
    memory.touch_ahead([chunk(0), chunk(1), chunk(2)])
    four_more = 4 * 4 * PAGE_BYTES
    assert four_more <= resident(memory.pages)
    if not memory_comes_in_huge_pages():
        assert resident(memory.pages) == four_more


def test_what_pages_hold_is_left_alone() -> None:
    memory = CacheMemory(3, 2048, PAGE_BYTES)
    written = np.random.default_rng(0).integers(0, 256, memory.pages.shape, np.uint8)
    memory.pages[:] = written
    for last in (0, 7, 500, 513, 700, 2046, 2047):
        memory.touch_ahead([chunk(last)])
    assert np.array_equal(memory.pages, written)


def test_large_pages_come_layer_by_layer_before_they_are_needed() -> None:
    small = cache_memory._SMALL_PAGES_BYTES // PAGE_BYTES
    memory = CacheMemory(8, 4 * small, PAGE_BYTES)
    memory.touch_ahead([chunk(small - 1 - 128 - 2)])  # 2 MB before the first of them
    counts = []
    for last in range(small - 128 - 2, small + 1):
        memory.touch_ahead([chunk(last)])
        counts.append(memory._parts[1]._num_touched)
    assert counts[0] == 0
    assert max(np.diff(counts)) == 1
    assert counts[-2] >= 8


def test_while_nobody_asks_some_megabytes_more_are_backed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_memory, "_AT_REST_BYTES", 8 * 4 * PAGE_BYTES)
    memory = CacheMemory(4, 64, PAGE_BYTES)
    memory.touch_ahead([chunk(0)])
    assert not memory.touch_at_rest()
    if not memory_comes_in_huge_pages():
        # The first page is somebody's, who touches it.
        assert resident(memory.pages) == 8 * 4 * PAGE_BYTES


def test_a_rest_is_short_and_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_memory, "_SECONDS_A_STEP", 0.0)
    memory = CacheMemory(4, 8, PAGE_BYTES)
    left = [memory.touch_at_rest() for _ in range(4 * 8 + 1)]
    assert left == [True] * 4 * 8 + [False]


def test_a_cache_of_a_few_pages_ends_where_it_ends() -> None:
    memory = CacheMemory(2, 3, PAGE_BYTES)
    for last in range(3):
        memory.touch_ahead([chunk(last)] * 5)
    memory.copy(0, 2)
    assert resident(memory.pages) <= memory.pages.nbytes
