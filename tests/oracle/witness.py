"""What transformers answers: logits of a whole sequence, and the greedy continuation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["choices", "greedy_tokens", "relative_error", "whole_logits"]


def whole_logits(model: PreTrainedModel, token_ids: Sequence[int]) -> NDArray[np.float32]:
    """Logits [T, vocab] of one sequence in one forward pass, without a cache."""
    import torch

    with torch.inference_mode():
        output = model(torch.tensor([list(token_ids)]), use_cache=False)
    return output.logits[0].float().numpy()


def choices(rows: NDArray[np.float32]) -> tuple[list[int], float]:
    """Arg-max of each row of logits, and the smallest lead of a first over a second.

    Leads are in units of the row's largest magnitude. For rows that follow a prompt and each
    token of an answer, the choices equal the answer exactly where it is the greedy one.
    """
    second, first = np.partition(rows, -2, axis=1)[:, -2:].T
    margins = (first - second) / np.abs(rows).max(axis=1)
    return rows.argmax(axis=1).tolist(), float(margins.min())


def greedy_tokens(model: PreTrainedModel, prompt: Sequence[int], count: int) -> list[int]:
    """Continue by arg-max, never stopping; sets aside the model's own generation config."""
    import torch
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(pad_token_id=0)
    ids = torch.tensor([list(prompt)])
    mask = torch.ones_like(ids)
    output = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=count)
    return output[0, len(prompt) :].tolist()


def relative_error(
    actual: NDArray[np.floating], expected: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Largest deviation of each row, in units of the expected row's largest magnitude [T]."""
    difference = np.abs(actual.astype(np.float64) - expected)
    return difference.max(axis=-1) / np.abs(expected).max(axis=-1)
