"""Opens the families' tiny checkpoints in transformers; one it has no class for is re-laid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.model.family_cases import FamilyCase

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["transformers_model"]


def transformers_model(case: FamilyCase, directory: Path) -> PreTrainedModel:
    """Write the checkpoint into `directory`; open it in float32, every tensor used."""
    from transformers import AutoModelForCausalLM

    case.write(directory)
    model, report = AutoModelForCausalLM.from_pretrained(
        directory, dtype="float32", attn_implementation="eager", output_loading_info=True
    )
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise ValueError(f"{case.name}: transformers expects other tensors: {report}")
    return model.eval()
