"""`dashinfer-lab pull`: fetch a model, so that later commands find it in the cache."""

from __future__ import annotations

from dashinfer_lab.cli.messages import language
from dashinfer_lab.cli.options import AsJson, Model
from dashinfer_lab.cli.output import print_json
from dashinfer_lab.progress import load_bars

__all__ = ["pull"]


def pull(model: Model, as_json: AsJson = False) -> None:
    """Fetch MODEL into the cache, or what changed since, and print where it lies."""
    from dashinfer_lab.hub import resolve

    with load_bars(language()) as progress:
        path = resolve(model, progress.fetch, refresh=True)
    if as_json:
        print_json({"model": model, "path": str(path)})
    else:
        print(path)
