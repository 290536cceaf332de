"""Models that loaders of this process have loaded, so that a cell run again frees its former one.

Knows models by the name they were asked for; holds none of them alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["load_in_place_of"]

_LOADED: Final[dict[str, weakref.ref[LLM]]] = {}


def load_in_place_of(name: str, load: Callable[[], LLM]) -> LLM:
    """Close what was loaded under `name` before, then load: never both at once in memory."""
    former = _LOADED.pop(name, None)
    llm = former() if former is not None else None
    if llm is not None:
        llm.close()
    del llm
    loaded = load()
    _LOADED[name] = weakref.ref(loaded)
    return loaded
