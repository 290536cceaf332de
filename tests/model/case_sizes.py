"""Sizes of the families' tiny checkpoints: irregular, small, alike in all of them."""

from __future__ import annotations

__all__ = [
    "HEADS",
    "HEAD_DIM",
    "HIDDEN",
    "INNER",
    "KV_HEADS",
    "KV_WIDTH",
    "LAYERS",
    "Q_WIDTH",
    "SQUARE",
    "VOCAB",
]

VOCAB, HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 331, 72, 171, 4, 2, 32, 2
Q_WIDTH, KV_WIDTH = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
SQUARE = 96
"""Width of models whose heads together are as wide as their rows: 6 of 16."""
