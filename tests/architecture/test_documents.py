"""ARCHITECTURE.md against the tree: its map names every module there is, and every dependency."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source_tree import PACKAGES, ROOT

ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _mapped(package: str) -> set[str]:
    """Modules in the first column of the map's rows of `package`."""
    rows = re.findall(rf"^\| `{package}\.(.+?) \|", _section("Map"), flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"[a-z_]+", row.replace(package, ""))}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_every_module_and_no_other(package: str) -> None:
    entries = [path for path in (ROOT / package).iterdir() if not path.name.startswith("_")]
    modules = {path.stem for path in entries if path.suffix == ".py"}
    packages = {path.name for path in entries if (path / "__init__.py").is_file()}

    assert _mapped(package) == modules | packages


def test_every_dependency_has_its_sentence() -> None:
    tomllib = pytest.importorskip("tomllib", reason="tomllib came with Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.split(r"[\[>=<]", line)[0] for listed in lists for line in listed}
    told = set(re.findall(r"[\w-]+", _section("Dependencies")))

    assert names - told - {"dashinfer-lab"} == set()
