"""Which models the picker offers: what is on this machine, and what can be had without a hub."""

from __future__ import annotations

from dashinfer_lab.hub.embedded import EMBEDDED_MODELS
from dashinfer_lab.hub.locate import cached_snapshots

__all__ = ["offered_models"]


def offered_models(first: str) -> tuple[str, ...]:
    """Return `first`, then the embedded models and every complete one of a hub, each once."""
    cached = (name for name, _ in cached_snapshots())
    return tuple(dict.fromkeys([first, *EMBEDDED_MODELS, *cached]))
