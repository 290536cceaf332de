"""Link object code into this process (LLJIT) and keep it alive.

A `Compiler` owns the code it linked: an address is valid only while its compiler lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from llvmlite import binding

from jit_kernels.compiler.cache import ObjectCache
from jit_kernels.compiler.target import target_machine
from jit_kernels.errors import CompileError
from jit_kernels.isa import Isa, detect, object_cache_directory, runnable

__all__ = ["Compiler", "compiler_for", "default_compiler"]


class Compiler:
    """Turns keyed IR into callable addresses for one `Isa`."""

    def __init__(self, isa: Isa, cache: ObjectCache) -> None:
        if not runnable(isa):
            raise CompileError(f"{isa.name} code cannot run on this machine; emit it instead")
        self.isa = isa
        self.cache = cache
        self._lljit: Any = binding.create_lljit_compiler(target_machine(isa))
        self._libraries: list[Any] = []
        self._addresses: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def address(self, key: str, symbol: str, emit: Callable[[], bytes]) -> int:
        """Address of `symbol` in the object `key`, which `emit()` makes where no cache has it."""
        with self._lock:
            known = self._addresses.get((key, symbol))
            if known is None:
                known = self._link(key, [symbol], emit)[symbol]
            return known

    def addresses(self, key: str, symbols: list[str], emit: Callable[[], bytes]) -> dict[str, int]:
        """Addresses of several symbols of one object."""
        with self._lock:
            if any((key, symbol) not in self._addresses for symbol in symbols):
                self._link(key, symbols, emit)
            return {symbol: self._addresses[key, symbol] for symbol in symbols}

    def _link(self, key: str, symbols: list[str], emit: Callable[[], bytes]) -> dict[str, int]:
        content = self.cache.get_or_create(key, emit)
        builder: Any = binding.JITLibraryBuilder()
        builder = builder.add_object_img(content).add_current_process()
        for symbol in symbols:
            builder = builder.export_symbol(symbol)
        library = builder.link(self._lljit, f"library{len(self._libraries)}")
        self._libraries.append(library)
        found = {symbol: int(library[symbol]) for symbol in symbols}
        for symbol, address in found.items():
            self._addresses[key, symbol] = address
        return found


@lru_cache(maxsize=16)
def compiler_for(isa: Isa, directory: Path) -> Compiler:
    """The process's compiler for `isa`, with objects kept under `directory`."""
    return Compiler(isa, ObjectCache(directory))


def default_compiler() -> Compiler:
    """The process's compiler for this machine and the default object cache."""
    return compiler_for(detect(), object_cache_directory())
