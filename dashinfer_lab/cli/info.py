"""`dashinfer-lab info`: this machine and installation, fit for a bug report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson
from dashinfer_lab.cli.output import print_json, print_rows
from dashinfer_lab.diagnostics import diagnose

__all__ = ["info"]


def info(as_json: AsJson = False) -> None:
    """Show the instruction set, threads and why, memory, versions and cache paths."""
    facts = diagnose()
    if as_json:
        print_json(facts)
    else:
        print_rows(_rows(facts))


def _rows(facts: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    for topic, values in facts.items():
        for name, value in values.items():
            yield _label(topic, name), _text(value)


def _label(topic: str, name: str) -> str:
    """Name of a fact; packages have theirs in every language."""
    if topic == "versions":
        return f"{text('info.versions')}.{name}"
    return text(f"info.{topic}.{name}")


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "none" if value is None else str(value)
