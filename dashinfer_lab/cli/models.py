"""`dashinfer-lab models`: the architectures this version runs, in which formats, and how known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson
from dashinfer_lab.cli.output import print_json
from dashinfer_lab.cli.table import print_table

if TYPE_CHECKING:
    from dashinfer_lab.models import Cell, SupportedModel

__all__ = ["models"]

_ModelType = Annotated[
    str | None,
    typer.Argument(metavar="MODEL_TYPE", help="Name the test of each format of this one."),
]


def models(model_type: _ModelType = None, as_json: AsJson = False) -> None:
    """List the supported architectures, by what a model's config.json calls them.

    Under them, every architecture's formats and instruction sets, each proven by a test.
    """
    from dashinfer_lab.models import describe_models, require_supported, supported_cells

    if model_type is not None:
        require_supported(model_type)
    supported = [it for it in describe_models() if model_type in (None, it.model_type)]
    cells = list(supported_cells(model_type))
    if as_json:
        print_json({"models": [_facts(model, cells) for model in supported]})
        return
    rows = [(model.model_type, model.architecture, model.description) for model in supported]
    columns = ("model_type", "architecture", "description")
    print_table([text(f"models.{column}") for column in columns], rows)
    print()
    if model_type is None:
        _print_formats(supported, cells)
    else:
        _print_tests(cells)
    print(f"\n{text('models.proofs')}")


def _facts(model: SupportedModel, cells: Iterable[Cell]) -> dict[str, object]:
    formats: dict[str, dict[str, object]] = {}
    for cell in cells:
        if cell.model_type == model.model_type:
            about = {"proof": cell.proof, "test": cell.test}
            formats.setdefault(cell.format, {})[cell.isa] = about
    return {**asdict(model), "formats": formats}


def _print_formats(supported: Iterable[SupportedModel], cells: Iterable[Cell]) -> None:
    """Print a row a model and a column a format; a digit there is an instruction set."""
    from dashinfer_lab.models import FORMATS, ISAS

    digits = {isa: str(number) for number, isa in enumerate(ISAS, 1)}
    proven: dict[tuple[str, str], str] = {}
    for cell in cells:
        place = (cell.model_type, cell.format)
        proven[place] = proven.get(place, "") + digits[cell.isa]
    rows = [
        (model.model_type, *(proven.get((model.model_type, each), "-") for each in FORMATS))
        for model in supported
    ]
    print_table([text("models.model_type"), *FORMATS], rows)
    print("\n" + "  ".join(f"{digit} {isa}" for isa, digit in digits.items()))


def _print_tests(cells: Iterable[Cell]) -> None:
    rows = [(text(f"models.{cell.proof}"), cell.test) for cell in cells]
    print_table([text("models.proof"), text("models.test")], rows)
