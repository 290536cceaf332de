"""Compiled objects on disk, addressed by what they were made from.

An entry is written to a temporary name and renamed, so writers may race; it begins with its own
SHA-256, so a torn or altered entry is compiled anew. Where the directory cannot be written, the
objects live in memory and one warning says so.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from jit_kernels.compiler.atomic import write_atomically

__all__ = ["ObjectCache"]

_LOG = logging.getLogger("jit_kernels")
_DIGEST_BYTES = 32


class ObjectCache:
    """Object files under `directory`, or in memory only where `directory` is None."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._memory: dict[str, bytes] = {}
        self.hits = 0
        self.misses = 0

    @property
    def directory(self) -> Path | None:
        """Where entries are kept; None once they are only in memory."""
        return self._directory

    def get_or_create(self, key: str, create: Callable[[], bytes]) -> bytes:
        """The object for `key`, from memory, from disk, or from `create()`."""
        found = self._memory.get(key) or self._read(key)
        if found is not None:
            self.hits += 1
            return found
        self.misses += 1
        made = create()
        self._write(key, made)
        return made

    def _path(self, directory: Path, key: str) -> Path:
        return directory / key[:2] / f"{key}.o"

    def _read(self, key: str) -> bytes | None:
        if self._directory is None:
            return None
        try:
            entry = self._path(self._directory, key).read_bytes()
        except OSError:
            return None
        digest, content = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        return content if hashlib.sha256(content).digest() == digest else None

    def _write(self, key: str, content: bytes) -> None:
        if self._directory is None:
            self._memory[key] = content
            return
        entry = hashlib.sha256(content).digest() + content
        try:
            write_atomically(self._path(self._directory, key), entry)
        except OSError as error:
            self._fall_back_to_memory(key, content, error)

    def _fall_back_to_memory(self, key: str, content: bytes, error: OSError) -> None:
        _LOG.warning(
            "cannot write compiled kernels to %s (%s): they are kept in memory and compiled "
            "again by the next process; give a writable directory (JIT_KERNELS_CACHE, or the "
            "cache of the program that uses jit_kernels)",
            self._directory,
            error.strerror or error,
        )
        self._directory = None
        self._memory[key] = content
