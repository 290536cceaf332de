"""`dashinfer-lab list`, `rm` and `cache`: what is stored on this machine, and its removal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson
from dashinfer_lab.cli.output import print_json, remark
from dashinfer_lab.cli.table import megabytes, print_table

if TYPE_CHECKING:
    from dashinfer_lab.cache import Removed

__all__ = ["cache", "list_models", "rm"]


def list_models(as_json: AsJson = False) -> None:
    """List the models in the cache: fetched ones, and what they were converted to."""
    from dashinfer_lab.cache import list_entries

    entries = list_entries()
    if as_json:
        print_json({"models": [entry.as_dict() for entry in entries]})
    elif entries:
        rows = [
            (
                it.name,
                it.scheme or text("list.as_fetched"),
                megabytes(it.num_bytes),
                _day(it.last_used),
            )
            for it in entries
        ]
        columns = ("model", "scheme", "size", "last_used")
        print_table([text(f"list.{column}") for column in columns], rows)
    else:
        remark(text("list.empty"))


def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="As `list` names them.")],
    as_json: AsJson = False,
) -> None:
    """Remove models from the cache; all names are checked before anything goes."""
    from dashinfer_lab.cache import remove

    _report(remove(names), as_json=as_json)


def cache(
    clear: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Remove all of a kind: models, conversions, objects, lowered, schedules, gradio.",
        ),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove what cut work left.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where the cache is and what it takes; clear a kind, or prune what was left behind."""
    from dashinfer_lab import cache as stored

    if clear is not None or prune:
        removed = stored.clear(clear) if clear is not None else []
        removed += stored.prune(time.time()) if prune else []
        _report(removed, as_json=as_json)
        return
    root, used = stored.cache_root(), stored.usage()
    existing = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if as_json:
        kinds = {it.kind: {"num_bytes": it.num_bytes, "num_files": it.num_files} for it in used}
        print_json({"path": str(root), "free_bytes": free, "kinds": kinds})
        return
    rows = [
        (it.kind, text(f"cache.{it.kind}"), megabytes(it.num_bytes), str(it.num_files))
        for it in used
    ]
    print_table([text(f"cache.{column}") for column in ("kind", "holds", "size", "files")], rows)
    print(f"\n{text('cache.where', path=root, free=free / 1e9)}")


def _report(removed: Sequence[Removed], *, as_json: bool) -> None:
    total = sum(it.num_bytes for it in removed)
    if as_json:
        listed = [{"name": it.name, "num_bytes": it.num_bytes} for it in removed]
        print_json({"removed": listed, "num_bytes": total})
        return
    for it in removed:
        print(text("cache.removed", name=it.name, size=megabytes(it.num_bytes)))
    remark(text("cache.freed", count=len(removed), size=megabytes(total)))


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
