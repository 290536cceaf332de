"""Values of a config.json, each checked for its kind and named where it is wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import cast

from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.numbers import is_whole

__all__ = ["Config", "mapping_of", "positive_of", "size_of", "switch_of"]

Config = Mapping[str, object]
"""A config.json, or an object within one."""

_SIZE_LIMIT = 1 << 24


def size_of(config: Config, key: str, default: int | None = None, limit: int = _SIZE_LIMIT) -> int:
    """Return an integer from 1 to `limit`; `default` where the key is absent or null.

    Raises CheckpointError for anything else, as all here do.
    """
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise CheckpointError(f"the model's config has no {key}")
    if not is_whole(value) or not 1 <= value <= limit:
        raise CheckpointError(
            f"{key} is {value!r:.100} in the model's config; expected an integer from 1 to {limit}"
        )
    return value


def positive_of(config: Config, key: str, default: float | None = None) -> float:
    """Return a positive finite number; `default` where the key is absent or null.

    Raises CheckpointError.
    """
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise CheckpointError(f"the model's config has no {key}")
    # An integer may be too large for a float.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= sys.float_info.max
    ):
        raise CheckpointError(f"{key} is {value!r:.100}; expected a positive finite number")
    return float(value)


def switch_of(config: Config, key: str, *, default: bool = False) -> bool:
    """Return true or false; `default` where the key is absent or null. Raises CheckpointError."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise CheckpointError(
            f"{key} is {value!r:.100} in the model's config; expected true or false"
        )
    return value


def mapping_of(config: Config, key: str) -> Config:
    """Return an object; an empty one where the key is absent or null. Raises CheckpointError."""
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise CheckpointError(f"{key} is {value!r:.100}, expected an object")
    return cast("Config", value)
