"""What counts as a whole number, wherever one is given: a truth value does not."""

from __future__ import annotations

from typing import TypeGuard

from dashinfer_lab.errors import ConfigError

__all__ = ["is_whole", "require_count"]


def is_whole(value: object) -> TypeGuard[int]:
    """Whether `value` is an integer and no truth value, which Python counts among them."""
    return isinstance(value, int) and not isinstance(value, bool)


def require_count(name: str, value: object) -> int:
    """Return `value`, a whole number of at least 1; else raise ConfigError naming the option."""
    if not is_whole(value) or value < 1:
        raise ConfigError(f"{name}={value!r:.80} must be a whole number of at least 1")
    return value
