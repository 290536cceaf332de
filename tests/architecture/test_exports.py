from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.architecture.source_tree import PACKAGES, Source, import_source, sources


def _is_public(source: Source) -> bool:
    return not source.path.name.startswith("_") or source.path.name == "__init__.py"


def _declared(source: Source) -> list[str] | None:
    """`__all__` of `source`, None where it has none."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def _defined(source: Source) -> set[str]:
    """Public functions and classes that `source` itself defines."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = {node.name for node in source.tree.body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


def test_a_module_that_defines_public_names_lists_them() -> None:
    silent = [s.name for s in sources(*PACKAGES) if _defined(s) and _declared(s) is None]

    assert silent == []


def test_every_public_function_and_class_is_listed() -> None:
    unlisted = {s.name: _defined(s) - set(_declared(s) or ()) for s in sources(*PACKAGES)}

    assert {name: missing for name, missing in unlisted.items() if missing} == {}


def test_no_name_is_listed_twice() -> None:
    counts = {s.name: Counter(_declared(s)) for s in sources(*PACKAGES)}

    assert {name for name, count in counts.items() if count and max(count.values()) > 1} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_listed_name_exists(package: str) -> None:
    missing = {
        source.name: absent
        for source in filter(_is_public, sources(package))
        if (absent := _absent(source))
    }

    assert missing == {}


def _absent(source: Source) -> list[str]:
    module = import_source(source)
    return [name for name in _declared(source) or () if not hasattr(module, name)]
