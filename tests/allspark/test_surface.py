from __future__ import annotations

from pathlib import Path

from dashinfer_lab import allspark
from tests.surface import surface

SNAPSHOT = Path(__file__).with_name("surface.txt")


def test_names_and_signatures_are_those_of_the_snapshot() -> None:
    """A change that is meant: write `surface(allspark)` to the file."""
    expected = SNAPSHOT.read_text(encoding="utf-8")

    assert surface(allspark) == expected
