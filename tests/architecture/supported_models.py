"""The READMEs' table of supported models, made from the models' own files.

`make readme` writes it into both; `test_readme` compares.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dashinfer_lab.models import describe_models
from tests.architecture.source_tree import ROOT

__all__ = ["HEADINGS", "table", "with_table"]

HEADINGS: Final = {
    "README.md": ("`model_type`", "architecture", "described in"),
    "README_CN.md": ("`model_type`", "架构", "出处"),
}
_PLACE: Final = re.compile(r"(<!-- supported models[^\n]*-->\n\n)(?:\|[^\n]*\n)*")


def table(heading: tuple[str, ...]) -> str:
    """Return Markdown: one row a model, under `heading`."""
    models = [
        (f"`{each.model_type}`", f"`{each.architecture}`", each.description)
        for each in describe_models()
    ]
    rows = [heading, ("---",) * len(heading), *models]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(text: str, heading: tuple[str, ...]) -> str:
    """Return `text` with the table after its mark. Raises ValueError where the mark is absent."""
    replaced, places = _PLACE.subn(lambda found: found[1] + table(heading), text)
    if places != 1:
        raise ValueError(f"{places} marks `<!-- supported models ... -->`, expected one")
    return replaced


def main(root: Path = ROOT) -> None:
    """Write the table into both READMEs."""
    for name, heading in HEADINGS.items():
        path = root / name
        path.write_text(with_table(path.read_text(encoding="utf-8"), heading), encoding="utf-8")


if __name__ == "__main__":
    main()
