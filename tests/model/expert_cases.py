"""Tensors of mixtures of experts in the families' tiny checkpoints: names and shapes of a layer."""

from __future__ import annotations

__all__ = ["QWEN_PARTS", "expert_tensors", "stacked_expert_tensors"]

QWEN_PARTS = ("gate_proj", "up_proj", "down_proj")

Shapes = dict[str, tuple[int, ...]]


def expert_tensors(
    block: str, count: int, hidden: int, inner: int, parts: tuple[str, str, str]
) -> Shapes:
    """A router, and three tensors for every expert."""
    shapes: Shapes = {f"{block}.gate.weight": (count, hidden)}
    shapes_of_parts = [(inner, hidden), (inner, hidden), (hidden, inner)]
    for expert in range(count):
        for part, shape in zip(parts, shapes_of_parts, strict=True):
            shapes[f"{block}.experts.{expert}.{part}.weight"] = shape
    return shapes


def stacked_expert_tensors(block: str, count: int, hidden: int, inner: int) -> Shapes:
    """A router, and the experts' matrices as transformers 5 holds them."""
    return {
        f"{block}.gate.weight": (count, hidden),
        f"{block}.experts.gate_up_proj": (count, 2 * inner, hidden),
        f"{block}.experts.down_proj": (count, hidden, inner),
    }
