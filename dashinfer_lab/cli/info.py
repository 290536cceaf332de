"""`dashinfer-lab info`: this machine and installation, fit for a bug report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dashinfer_lab.cli.messages import language, spoken, text
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
    from dashinfer_lab.engine.auto_weights import rule

    reasons = {"reason": _threads_reason(facts["threads"]), "auto": rule(language=language())}
    for topic, values in facts.items():
        for name, value in values.items():
            yield _label(topic, name), reasons.get(name) or spoken(value)


def _threads_reason(facts: Mapping[str, object]) -> str:
    """Say in the language of the command what `ThreadPlan.reason` says."""
    quota = facts["cgroup_quota"]
    limit = text("info.no_quota") if quota is None else text("info.quota", quota=quota)
    return text("info.reason", limit=limit, **facts)


def _label(topic: str, name: str) -> str:
    """Name of a fact; packages have theirs in every language."""
    if topic == "versions":
        return f"{text('info.versions')}.{name}"
    return text(f"info.{topic}.{name}")
