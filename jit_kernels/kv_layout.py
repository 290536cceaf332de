"""How keys and values lie in a page of the cache, of one kv head, by format.

    fp32, bf16   K [D][32], V [32][D]
    int8         K [D/2][3][32], V [32][D], then float32 scales of K [32] and of V [32]

An int8 element is code * scale, one scale a token and head. A value's code has 8 bits. A key's has
12, for one pair of channels may be ten times as large as the others: of two rows, the upper eight
bits each, then a row of bytes with the lower four of both, the first row's in the lower half. Knows
nothing of how they are computed.
"""

from __future__ import annotations

from typing import Final, Literal

__all__ = [
    "KEY_GROUP",
    "KEY_LOW_BITS",
    "KV_FORMATS",
    "LARGEST_KEY_CODE",
    "LARGEST_VALUE_CODE",
    "LARGEST_WEIGHT_CODE",
    "PAGE_SIZE",
    "KvFormat",
    "block_bytes",
    "key_bytes",
    "largest_query_code",
    "value_bytes",
]

KvFormat = Literal["fp32", "bf16", "int8"]
KV_FORMATS: Final[tuple[KvFormat, ...]] = ("fp32", "bf16", "int8")
PAGE_SIZE: Final = 32
"""Tokens that a page holds."""
KEY_GROUP: Final = 2
"""Rows of an int8 page's K whose lower bits share a row."""
KEY_LOW_BITS: Final = 4
LARGEST_KEY_CODE: Final = 2047
LARGEST_VALUE_CODE: Final = 127
LARGEST_WEIGHT_CODE: Final = 32767
"""Of what values of int8 are weighed with: sums over a segment's keys fit int32."""
_ELEMENT_BYTES: Final = {"fp32": 4, "bf16": 2, "int8": 1}
_SCALE_BYTES: Final = 4


def largest_query_code(head_dim: int) -> int:
    """Of a query that meets keys of int8, the largest code with which any sum fits int32."""
    return min(32767, (2**31 - 1) // ((LARGEST_KEY_CODE + 1) * head_dim))


def key_bytes(kv_format: str, head_dim: int) -> int:
    """Bytes of a page's K, without scales."""
    size = value_bytes(kv_format, head_dim)
    return size // KEY_GROUP * (KEY_GROUP + 1) if kv_format == "int8" else size


def value_bytes(kv_format: str, head_dim: int) -> int:
    """Bytes of a page's V, without scales."""
    return PAGE_SIZE * head_dim * _ELEMENT_BYTES[kv_format]


def block_bytes(kv_format: str, head_dim: int) -> int:
    """Bytes of one kv head in a page."""
    scales = 2 * PAGE_SIZE * _SCALE_BYTES if kv_format == "int8" else 0
    return key_bytes(kv_format, head_dim) + value_bytes(kv_format, head_dim) + scales
