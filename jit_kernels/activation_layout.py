"""How prepared activations lie in memory: the contract between `prepare` and `linear` kernels.

    rows <= REDUNDANT_ROWS   every worker has its own copy, rows one after the other
    rows <= GEMV_ROWS        one shared copy, rows one after the other
    more rows                strips of `row_tile` rows: [strip][k][row_tile] float32, or
                             [strip][k/2][row_tile][2] int16; missing rows of the last strip are 0
    a row_tile of UNTILED    one shared copy, rows one after the other, whatever their number

int16 activations are stored in the order 0, 2, 1, 3 within each quad of k, which is the order in
which the even and odd bytes of a 32-bit word of u8 weights come, and the nibbles of one of u4. K is
padded with zeros to a multiple of 16. Knows nothing of how either side computes.
"""

from __future__ import annotations

__all__ = ["GEMV_ROWS", "K_ALIGNMENT", "REDUNDANT_ROWS", "UNTILED", "padded_k"]

REDUNDANT_ROWS = 4
GEMV_ROWS = 64
K_ALIGNMENT = 16
UNTILED = 0


def padded_k(k: int) -> int:
    """Elements of a prepared row: `k` rounded up to `K_ALIGNMENT`."""
    return -(-k // K_ALIGNMENT) * K_ALIGNMENT
