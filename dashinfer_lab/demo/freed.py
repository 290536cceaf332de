"""What an ended page would keep in memory, given back; knows no page."""

from __future__ import annotations

import gc

from jit_kernels.runtime.buffers import give_back_freed

__all__ = ["give_back"]


def give_back() -> None:
    """Return the memory of ended pages to the system.

    FastAPI keeps the last 4096 handlers it classified, and each of Gradio's keeps its page of
    4 MB; glibc keeps what threads freed, some 100 MB after a model was loaded and closed.
    """
    from fastapi.dependencies import models

    for kept in vars(models).values():
        forget = getattr(kept, "cache_clear", None)
        if forget is not None:
            forget()
    gc.collect()
    give_back_freed()
