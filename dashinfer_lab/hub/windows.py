"""Which layers of a config.json attend within a window, and how long it is; knows no graph.

A window of w shows a query the w last keys, its own among them.
"""

from __future__ import annotations

from typing import cast

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, size_of, switch_of
from dashinfer_lab.hub.families import Family
from dashinfer_lab.numbers import is_whole

__all__ = ["layer_windows", "sliding_layers"]

_SLIDING, _FULL = "sliding_attention", "full_attention"
_SWITCHED_FROM = 28  # max_window_layers of the Qwen configurations


def layer_windows(
    config: Config, family: Family, context_length: int, num_layers: int
) -> tuple[int | None, ...]:
    """Return the window of every layer, None where all keys are seen; empty where all are None.

    A window that no context outgrows is none. Raises UnsupportedModelError for a window of an
    architecture without one and for other kinds of layers, CheckpointError for nonsense.
    """
    kinds = _listed_kinds(config, num_layers)
    if family.window == "none":
        if config.get("sliding_window") is not None or (kinds and _SLIDING in kinds):
            raise UnsupportedModelError(
                f"sliding_window {config.get('sliding_window')!r:.100} is not supported for this "
                "architecture. Use a checkpoint without it."
            )
        return ()
    if config.get("sliding_window", family.default_window) is None:
        return ()
    if family.window.startswith("switch") and not switch_of(config, "use_sliding_window"):
        return ()
    window = size_of(config, "sliding_window", family.default_window)
    if family.window in ("always", "switch all"):
        if kinds and _FULL in kinds:
            raise UnsupportedModelError(
                f"layer_types holds {_FULL!r} beside sliding_window {window}: not supported for "
                "this architecture, every layer of which has the window"
            )
        kinds = [_SLIDING] * num_layers
    kinds = kinds or _default_kinds(config, family, num_layers)
    if window >= context_length or _SLIDING not in kinds:
        return ()
    return tuple(window if kind == _SLIDING else None for kind in kinds)


def sliding_layers(config: Config, family: Family, num_layers: int) -> tuple[bool, ...]:
    """Return which layers are of the kind that has the window, whether or not it hides a key."""
    kinds = _listed_kinds(config, num_layers) or _default_kinds(config, family, num_layers)
    return tuple(kind == _SLIDING for kind in kinds)


def _listed_kinds(config: Config, num_layers: int) -> list[object] | None:
    kinds = config.get("layer_types")
    if kinds is None:
        return None
    listed = cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
    unknown = [kind for kind in listed if kind not in (_FULL, _SLIDING)]
    if unknown:
        raise UnsupportedModelError(f"layer_types holds {unknown[0]!r:.100}: not supported")
    if len(listed) != num_layers:
        raise CheckpointError(f"layer_types names {len(listed)} layers of {num_layers}")
    return listed


def _default_kinds(config: Config, family: Family, num_layers: int) -> list[object]:
    """What the configuration class makes of layers that are not listed."""
    if family.window == "pattern":
        every = size_of(config, "sliding_window_pattern", family.window_pattern)
        return [_FULL if (layer + 1) % every == 0 else _SLIDING for layer in range(num_layers)]
    first = config.get("max_window_layers", _SWITCHED_FROM)
    if not is_whole(first) or first < 0:
        raise CheckpointError(f"max_window_layers is {first!r:.100}; expected an integer >= 0")
    if family.window == "switch even":
        slides = [layer < first and layer % 2 == 0 for layer in range(num_layers)]
    else:
        slides = [layer >= first for layer in range(num_layers)]
    return [_SLIDING if slide else _FULL for slide in slides]
