"""Rows under a heading, in columns, for a person to read; knows no command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["megabytes", "print_table"]


def print_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write columns as wide as their widest cell; figures, those that end in MB, to the right."""
    listed = [heading, *rows]
    widths = [max(len(row[column]) for row in listed) for column in range(len(heading))]
    for row in listed:
        cells = [
            cell.rjust(width) if cell.endswith(" MB") else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def megabytes(num_bytes: int) -> str:
    """Spell a size as all commands do."""
    return f"{num_bytes / 1e6:.1f} MB"
