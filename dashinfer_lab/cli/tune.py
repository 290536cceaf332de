"""`dashinfer-lab tune`: measure how linear layers are best walked here, and keep the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dashinfer_lab.cli.loading import load
from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson, Model, Threads, Weights
from dashinfer_lab.cli.output import print_json, print_rows, remark

if TYPE_CHECKING:
    from jit_kernels.autotune import Choice

__all__ = ["tune"]


def tune(
    model: Model, weights: Weights = "auto", threads: Threads = None, as_json: AsJson = False
) -> None:
    """Measure schedules of MODEL's linear layers, some 20 s; later loads use the quickest."""
    if not as_json:
        remark(text("tune.measuring"))
    with load(model, weights, threads, as_json=as_json, autotune="again") as llm:
        choice, machine = llm.schedules, {"isa": llm.isa, "threads": llm.threads}
    if as_json:
        found = None if choice is None else choice.as_dict()
        print_json({"model": model, **machine, "schedules": found})
    elif choice is None:
        remark(text("tune.busy"))
    else:
        print_rows(_rows(choice))
        remark(text("tune.kept"))


def _rows(choice: Choice) -> Iterator[tuple[str, str]]:
    """Each kind of linear layer and its schedule, then what was gained."""
    yield text("tune.row_tile"), str(choice.row_tile)
    for kind, word in choice.schedules.items():
        yield kind, text("tune.default") if word == "default" else word
    for name, value in choice.gains.items():
        yield name, text("tune.gain", percent=100 * (value - 1))
