"""`dashinfer-lab models`: the architectures this version runs."""

from __future__ import annotations

from dataclasses import asdict

from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import AsJson
from dashinfer_lab.cli.output import print_json
from dashinfer_lab.cli.table import print_table

__all__ = ["models"]


def models(as_json: AsJson = False) -> None:
    """List the supported architectures, by what a model's config.json calls them."""
    from dashinfer_lab.models import describe_models

    supported = describe_models()
    if as_json:
        print_json({"models": [asdict(model) for model in supported]})
        return
    rows = [(model.model_type, model.architecture, model.description) for model in supported]
    columns = ("model_type", "architecture", "description")
    print_table([text(f"models.{column}") for column in columns], rows)
