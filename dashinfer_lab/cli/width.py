"""Columns that a text takes in a terminal, where a Chinese character takes two."""

from __future__ import annotations

from unicodedata import east_asian_width

__all__ = ["padded", "width"]


def width(text: str) -> int:
    """Count the columns of `text`."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Fill `text` up to `columns` with spaces after it, or before it where it goes to the right."""
    spaces = " " * (columns - width(text))
    return spaces + text if right else text + spaces
