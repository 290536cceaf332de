"""Which models the picker offers: what is on this machine, and what can be had without a hub."""

from __future__ import annotations

from typing import Final

from dashinfer_lab.hub.embedded import EMBEDDED_MODELS
from dashinfer_lab.hub.locate import cached_snapshots

__all__ = ["LARGER_MODEL", "is_english_only", "offered_models"]

LARGER_MODEL: Final = "qwen/Qwen1.5-0.5B-Chat"
"""What ModelScope has for who needs more than the embedded model: Chinese, and fewer mistakes."""


def offered_models(first: str) -> tuple[str, ...]:
    """Return `first`, then the embedded models and every complete one of a hub, each once."""
    cached = (name for name, _ in cached_snapshots())
    return tuple(dict.fromkeys([first, *EMBEDDED_MODELS, *cached]))


def is_english_only(model: str) -> bool:
    """Whether `model` is an embedded one: they speak nothing else."""
    return model in EMBEDDED_MODELS
