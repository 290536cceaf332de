"""What weights, and keys and values, may be stored as: the controls that choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dashinfer_lab.engine.auto_kv import KV_CACHE_DTYPES
from dashinfer_lab.widgets.controls import dropdown

__all__ = ["format_controls"]

_WEIGHTS: Final = (
    *("auto", "a16w8", "a16w8:32", "a16w8:128", "a16w8:row", "a16w4", "a8w8", "a8w4"),
    *("bf16", "fp32"),
)


def format_controls(
    say: Callable[..., str], weights: str, kv_cache_dtype: str, choose: Callable[..., object]
) -> dict[str, Any]:
    """Lists by the names that `choose` takes, set to `weights` and `kv_cache_dtype`."""
    kept = {"weights": (weights, _WEIGHTS), "kv_cache_dtype": (kv_cache_dtype, KV_CACHE_DTYPES)}
    return {
        name: dropdown(
            say(f"loader.{name}"),
            list(dict.fromkeys([value, *offered])),
            value,
            lambda new, name=name: choose(**{name: new}),
        )
        for name, (value, offered) in kept.items()
    }
