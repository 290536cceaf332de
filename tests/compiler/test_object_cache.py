from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jit_kernels.compiler import ObjectCache

KEY = "ab" * 32
CONTENT = b"machine code" * 100


def entry(directory: Path) -> Path:
    (path,) = directory.rglob("*.o")
    return path


def never() -> bytes:
    raise AssertionError("this object should come from the cache")


def test_an_object_is_made_once_and_found_by_the_next_process(tmp_path: Path) -> None:
    assert ObjectCache(tmp_path).get_or_create(KEY, lambda: CONTENT) == CONTENT

    assert ObjectCache(tmp_path).get_or_create(KEY, never) == CONTENT


def test_other_keys_are_other_objects(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.get_or_create(KEY, lambda: CONTENT)

    assert cache.get_or_create("cd" * 32, lambda: b"other") == b"other"
    assert (cache.hits, cache.misses) == (0, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:10],
        lambda whole: whole[:-1],
        lambda whole: whole[:40] + bytes([whole[40] ^ 1]) + whole[41:],
        lambda whole: bytes(len(whole)),
    ],
    ids=["empty", "cut in the digest", "cut", "one bit flipped", "zeros"],
)
def test_a_damaged_entry_is_made_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    ObjectCache(tmp_path).get_or_create(KEY, lambda: CONTENT)
    path = entry(tmp_path)
    path.write_bytes(damage(path.read_bytes()))

    assert ObjectCache(tmp_path).get_or_create(KEY, lambda: CONTENT) == CONTENT
    assert ObjectCache(tmp_path).get_or_create(KEY, never) == CONTENT


def test_writers_may_race_and_leave_one_whole_entry(tmp_path: Path) -> None:
    caches = [ObjectCache(tmp_path) for _ in range(8)]

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda c: c.get_or_create(KEY, lambda: CONTENT), caches))

    assert set(made) == {CONTENT}
    assert ObjectCache(tmp_path).get_or_create(KEY, never) == CONTENT
    assert [path.name for path in tmp_path.rglob("*.part")] == []


@pytest.mark.parametrize("obstacle", ["a file in its place", "no such device"])
def test_without_a_writable_directory_objects_live_in_memory_and_one_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, obstacle: str
) -> None:
    place = tmp_path / "cache"
    if obstacle == "no such device":
        place = Path("/proc/no-such-place")
    else:
        place.write_text("not a directory")
    cache = ObjectCache(place)

    with caplog.at_level(logging.WARNING, "jit_kernels"):
        cache.get_or_create(KEY, lambda: CONTENT)
        cache.get_or_create("cd" * 32, lambda: b"other")

    assert cache.get_or_create(KEY, never) == CONTENT
    assert cache.directory is None
    (record,) = caplog.records
    assert str(place) in record.getMessage()
    assert "JIT_KERNELS_CACHE" in record.getMessage()


def test_kernels_run_where_the_cache_is_read_only(tmp_path: Path) -> None:
    script = """
import numpy as np
from jit_kernels.compiler import default_compiler
from jit_kernels.kernels.rmsnorm import rmsnorm

x = np.ones((1, 16), np.float32)
code = rmsnorm.specialise().compile(default_compiler())
code(np.array([1]), x, 16, x[0], 0.0, 16, x, 16)
assert (x == 1).all()
assert code.compiler.cache.directory is None
"""
    place = tmp_path / "a file"
    place.write_text("")
    environment = {
        **os.environ,
        "JIT_KERNELS_CACHE": str(place),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }

    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert "kept in memory" in done.stderr
