from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from jit_kernels.runtime import aligned
from jit_kernels.runtime.buffers import give_back, give_back_freed, prefer_huge_pages


@pytest.mark.parametrize("shape", [0, 1, 7, 1003, (3, 5), (0, 4), (2, 3, 1003)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_a_buffer_begins_aligned_and_zero(
    shape: int | tuple[int, ...], dtype: type[np.generic]
) -> None:
    array = aligned(shape, dtype)

    assert array.ctypes.data % 64 == 0
    assert array.shape == np.empty(shape, dtype).shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not array.any()


def resident_kib() -> int:
    status = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return int(status.partition("Rss:")[2].split()[0])


def test_a_buffer_takes_memory_only_where_it_is_touched() -> None:
    mib = 1 << 20
    before = resident_kib()
    array = aligned(256 * mib, np.uint8)
    array[: 4 * mib] = 1
    grown = resident_kib() - before

    assert 4 * 1024 <= grown < 64 * 1024


def test_a_buffer_goes_back_to_the_system_with_its_last_view() -> None:
    mib = 1 << 20
    array = aligned(256 * mib, np.uint8)
    array[:] = 1
    view = array[5:]
    held = resident_kib()
    del array
    still_held = resident_kib()
    del view
    freed = resident_kib()

    assert abs(held - still_held) < 64 * 1024
    assert held - freed > 192 * 1024


def test_a_buffer_that_is_still_held_can_be_given_back() -> None:
    mib = 1 << 20
    array = aligned(256 * mib, np.uint8)
    array[:] = 1
    held = resident_kib()
    give_back(array[5:].reshape(-1, 1))
    freed = resident_kib()

    assert held - freed > 192 * 1024
    assert not array[: 4 * mib].any()
    give_back(np.ones(3))  # of other memory: nothing happens


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_what_the_c_library_keeps_of_freed_memory_can_be_given_back() -> None:
    blocks = [np.ones(60_000, np.uint8) for _ in range(2000)]
    pin = np.ones(60_000, np.uint8)  # behind them, so that they are no end to be cut off
    del blocks
    held = resident_kib()
    give_back_freed()

    assert held - resident_kib() > 64 * 1024
    assert pin.all()


def huge_kib() -> int:
    status = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return int(status.partition("AnonHugePages:")[2].split()[0])


def huge_pages_are_given_where_asked_for() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[madvise]" in setting.read_text(encoding="ascii")


def test_a_part_of_a_buffer_takes_huge_pages_within_it_alone() -> None:
    mib = 1 << 20
    array = aligned(64 * mib, np.uint8)
    prefer_huge_pages(array[9 * mib : 31 * mib])
    before, resident = huge_kib(), resident_kib()
    array[:: 4 * mib] = 1

    inside = 10 * 2 * 1024  # 10 .. 30 MB: the whole 2 MB pages
    if huge_pages_are_given_where_asked_for():
        assert 0 < huge_kib() - before <= inside
        assert resident_kib() - resident < inside + 4096


def test_huge_pages_for_what_holds_none_or_other_memory_do_nothing() -> None:
    before = huge_kib()
    small, other = aligned(1000, np.uint8), np.zeros(256 << 10, np.uint8)
    for array in (small, other):
        prefer_huge_pages(array)
        array[:] = 1
    assert huge_kib() <= before
