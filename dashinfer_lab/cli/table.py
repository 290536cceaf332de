"""Rows under a heading, in columns, for a person to read; knows no command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dashinfer_lab.cli.output import printable
from dashinfer_lab.cli.width import padded, width

__all__ = ["megabytes", "print_table"]


def print_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write columns as wide as their widest cell; figures, those that end in MB, to the right."""
    listed = [heading, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(width(row[column]) for row in listed) for column in range(len(heading))]
    for row in listed:
        cells = [
            padded(cell, columns, right=cell.endswith(" MB"))
            for cell, columns in zip(row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def megabytes(num_bytes: int) -> str:
    """Spell a size as all commands do."""
    return f"{num_bytes / 1e6:.1f} MB"
