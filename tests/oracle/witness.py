"""What transformers answers: logits of a whole sequence, and greedy tokens with their margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["greedy_tokens", "relative_error", "whole_logits"]


def whole_logits(model: PreTrainedModel, token_ids: Sequence[int]) -> NDArray[np.float32]:
    """Logits [T, vocab] of one sequence in one forward pass, without a cache."""
    import torch

    with torch.inference_mode():
        output = model(torch.tensor([list(token_ids)]), use_cache=False)
    return output.logits[0].float().numpy()


def greedy_tokens(
    model: PreTrainedModel, token_ids: Sequence[int], count: int
) -> tuple[list[int], float]:
    """Continue by arg-max, never stopping; also the smallest lead of a choice over the second.

    Leads are in units of the row's largest magnitude. Every token is a forward pass of its own,
    since `generate` would apply the checkpoint's generation config.
    """
    import torch

    tokens: list[int] = []
    margins: list[float] = []
    for _ in range(count):
        sequence = torch.tensor([[*token_ids, *tokens]])
        with torch.inference_mode():
            row = model(sequence, use_cache=False, logits_to_keep=1).logits[0, -1].float()
        best = row.topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(float((best.values[0] - best.values[1]) / row.abs().max()))
    return tokens, min(margins)


def relative_error(
    actual: NDArray[np.floating], expected: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Largest deviation of each row, in units of the expected row's largest magnitude [T]."""
    difference = np.abs(actual.astype(np.float64) - expected)
    return difference.max(axis=-1) / np.abs(expected).max(axis=-1)
