"""Counter-based random numbers: Philox4x32-10   (Salmon et al. 2011, section 5.3).

A number is a function of its counter and key alone: no state, no order, the same everywhere.
"""

from __future__ import annotations

from jit_kernels.dsl.values import Value
from jit_kernels.types import F32, I64, U32

__all__ = ["philox", "uniform"]

Words = tuple[Value[U32], Value[U32], Value[U32], Value[U32]]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: Words, key: tuple[Value[U32], Value[U32]]) -> Words:
    """Four random words."""
    first, second = key
    for _ in range(_ROUNDS):
        high_0, low_0 = _product(counter[0], _MULTIPLIERS[0])
        high_1, low_1 = _product(counter[2], _MULTIPLIERS[1])
        counter = (high_1 ^ counter[1] ^ first, low_1, high_0 ^ counter[3] ^ second, low_0)
        first, second = first + _WEYL[0], second + _WEYL[1]
    return counter


def uniform(words: Words) -> Value[F32]:
    """A multiple of 2**-24 in [0, 1), from the first word."""
    return (words[0] >> 8).to(F32) * 2.0**-24


def _product(word: Value[U32], multiplier: int) -> tuple[Value[U32], Value[U32]]:
    """Upper and lower half of a 64-bit product."""
    wide = word.to(I64) * multiplier
    return (wide >> 32).to(U32), wide.to(U32)
