"""Rotary embedding by kind of layer, as Gemma 3 states it: one for all keys, one for windows.

Transformers 5 has an object a kind in `rope_parameters`; four has `rope_theta` and `rope_scaling`
for the layers that see all keys, and `rope_local_base_freq` for the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, mapping_of
from dashinfer_lab.hub.families import Family
from dashinfer_lab.hub.rope_settings import rope_settings

__all__ = ["rope_by_kind"]

_FULL: Final = "full_attention"
_SLIDING: Final = "sliding_attention"


def rope_by_kind(
    config: Config, context_length: int, family: Family
) -> tuple[RopeConfig, RopeConfig | None]:
    """Return the embedding of layers that see all keys, and that of the others if it differs.

    Raises UnsupportedModelError and CheckpointError as `rope_settings` does.
    """
    if family.local_theta is None:
        return rope_settings(config, context_length, family), None
    parameters = mapping_of(config, "rope_parameters")
    strange = sorted(set(parameters) - {_FULL, _SLIDING})
    if strange:
        raise UnsupportedModelError(
            f"rope_parameters holds {', '.join(strange)!r:.200}; this architecture has "
            f"{_FULL!r} and {_SLIDING!r} there"
        )
    whole = {**config, "rope_parameters": mapping_of(parameters, _FULL)}
    local = {
        "rope_theta": config.get("rope_local_base_freq"),
        "rope_parameters": mapping_of(parameters, _SLIDING),
    }
    of_local = replace(family, theta=family.local_theta)
    return (
        rope_settings(whole, context_length, family),
        rope_settings(local, context_length, of_local),
    )
