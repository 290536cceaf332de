"""The packages' sources, parsed once for the tests of this directory."""

from __future__ import annotations

import ast
import gc
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jit_kernels", "dashinfer_lab")


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: where it is, what it says."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Path from the root, as messages show it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """Dotted name to import it by."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def num_lines(self) -> int:
        return len(self.text.splitlines())


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file under `folders`, in order of their names.

    Their million nodes stay for the run; frozen, they do not slow each later garbage collection.
    """
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    parsed = tuple(
        Source(path, text, ast.parse(text, str(path)))
        for path, text in ((path, path.read_text(encoding="utf-8")) for path in found)
    )
    gc.freeze()
    return parsed


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of `source`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def module_level_imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of each import that runs when `source` is imported."""
    yield from _imports_run_by(source.tree.body)


def all_imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full name of each import anywhere in `source`."""
    for node in ast.walk(source.tree):
        yield from _names(node)


def _imports_run_by(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in body:
        yield from _names(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports_run_by(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            for block in ("body", "orelse", "finalbody"):
                yield from _imports_run_by(getattr(node, block, []))


def _names(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield node.lineno, alias.name
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.lineno, node.module


def import_source(source: Source) -> object:
    """Import the module that `source` is."""
    return importlib.import_module(source.module)
