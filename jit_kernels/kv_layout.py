"""How keys and values lie in a page of the cache, of one kv head, by format.

    fp32, bf16   K [D][32], V [32][D]
    int8         K [D][32], V [32][D], then float32 scales of K [32] and of V [32]

An int8 element is q * scale, one scale a token and head. Knows nothing of how they are computed.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["KV_FORMATS", "PAGE_SIZE", "KvFormat", "block_bytes", "elements_bytes"]

KvFormat = Literal["fp32", "bf16", "int8"]
KV_FORMATS: Final[tuple[KvFormat, ...]] = ("fp32", "bf16", "int8")
PAGE_SIZE: Final = 32
"""Tokens that a page holds."""

_ELEMENT_BYTES: Final = {"fp32": 4, "bf16": 2, "int8": 1}
_SCALE_BYTES: Final = 4


def elements_bytes(kv_format: str, head_dim: int) -> int:
    """Bytes of a page's K, or V, without scales."""
    return PAGE_SIZE * head_dim * _ELEMENT_BYTES[kv_format]


def block_bytes(kv_format: str, head_dim: int) -> int:
    """Bytes of one kv head in a page."""
    scales = 2 * PAGE_SIZE * _SCALE_BYTES if kv_format == "int8" else 0
    return 2 * elements_bytes(kv_format, head_dim) + scales
