from __future__ import annotations

import ast

import pytest

from tests.architecture.source_tree import PACKAGES, Source, import_source, sources

PUBLIC = [
    source
    for source in sources(*PACKAGES)
    if source.path.name != "__main__.py" and not source.path.name.startswith("_")
]
each_public = pytest.mark.parametrize("source", PUBLIC, ids=lambda s: s.name)


def declared(source: Source) -> list[str] | None:
    """`__all__` of `source`, None where it has none."""
    for node in source.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            return list(ast.literal_eval(node.value))  # type: ignore[attr-defined]  # an Assign
    return None


def defined(source: Source) -> set[str]:
    """Public functions and classes that `source` itself defines."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    names = {node.name for node in source.tree.body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


@each_public
def test_a_public_module_declares_what_it_exports(source: Source) -> None:
    assert declared(source) is not None


@each_public
def test_every_public_function_and_class_is_exported(source: Source) -> None:
    assert defined(source) - set(declared(source) or []) == set()


@pytest.mark.parametrize("source", sources(*PACKAGES), ids=lambda s: s.name)
def test_every_exported_name_exists(source: Source) -> None:
    module = import_source(source)

    assert [name for name in declared(source) or [] if not hasattr(module, name)] == []


@pytest.mark.parametrize("source", sources(*PACKAGES), ids=lambda s: s.name)
def test_no_name_is_exported_twice(source: Source) -> None:
    names = declared(source) or []

    assert sorted(set(names)) == sorted(names)
