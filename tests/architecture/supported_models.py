"""The READMEs' tables of supported models and formats, made from the models' registry.

`make readme` writes them into both; `test_readme` compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from dashinfer_lab.models import FORMATS, describe_models, supported_cells
from tests.architecture.source_tree import ROOT

__all__ = ["HEADINGS", "with_tables"]

HEADINGS: Final = {
    "README.md": ("`model_type`", "architecture", "described in"),
    "README_CN.md": ("`model_type`", "架构", "出处"),
}
_PROOFS: Final = "tests/model/test_support.py"


def _models(heading: tuple[str, ...]) -> str:
    """One row a model: what it is called, and where it is described."""
    rows = [
        (f"`{each.model_type}`", f"`{each.architecture}`", each.description)
        for each in describe_models()
    ]
    return _markdown(heading, rows)


def _formats(heading: tuple[str, ...]) -> str:
    """One row a model and one column a format: a tick whose title the ids of its tests begin with.

    That is what stands in their brackets, before the instruction set.
    """
    proven = {(cell.model_type, cell.format) for cell in supported_cells()}
    rows = [
        (
            f"`{each.model_type}`",
            *(
                f'[✓]({_PROOFS} "{each.model_type}-{name}")'
                if (each.model_type, name) in proven
                else ""
                for name in FORMATS
            ),
        )
        for each in describe_models()
    ]
    return _markdown((heading[0], *(f"`{name}`" for name in FORMATS)), rows)


_TABLES: Final[dict[str, Callable[[tuple[str, ...]], str]]] = {
    "supported models": _models,
    "supported formats": _formats,
}


def _markdown(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_tables(text: str, heading: tuple[str, ...]) -> str:
    """Return `text`, each table after its mark. Raises ValueError where a mark is absent."""
    for name, table in _TABLES.items():
        place = re.compile(rf"(<!-- {name}[^\n]*-->\n\n)(?:\|[^\n]*\n)*")
        written = table(heading)
        text, places = place.subn(lambda found, written=written: found[1] + written, text)
        if places != 1:
            raise ValueError(f"{places} marks `<!-- {name} ... -->`, expected one")
    return text


def main(root: Path = ROOT) -> None:
    """Write the tables into both READMEs."""
    for name, heading in HEADINGS.items():
        path = root / name
        path.write_text(with_tables(path.read_text(encoding="utf-8"), heading), encoding="utf-8")


if __name__ == "__main__":
    main()
