"""What some architectures add to attention, as local functions of standard operators.

Opset 24 has no window and no ALiBi: both feed Attention's mask, [B, H or 1, S, T] for S new tokens
and T keys in all. Knows no weights.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["ATTENTION_BODIES", "alibi_slopes", "logn_table"]

# Distance from every new token to every key, [B, 1, S, T], negative for keys after it.
_DISTANCE = """
    past_length = Shape <start = 2, end = 3> (past_key)
    new_length = Shape <start = 1, end = 2> (position_ids)
    length = Add (past_length, new_length)
    num_keys = Squeeze (length)
    first = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    keys = Range (first, num_keys, one)
    around = Constant <value_ints = [1, 3]> ()
    rows = Unsqueeze (position_ids, around)
    distance = Sub (rows, keys)
"""

ATTENTION_BODIES = {
    "CausalWindow": f"""CausalWindow <window> (position_ids, past_key) => (mask) {{
    {_DISTANCE}
    width = Constant <value_int: int = @window> ()
    mask = Less (distance, width) }}""",
    "AlibiBias": f"""AlibiBias (position_ids, past_key, slopes) => (mask) {{
    {_DISTANCE}
    after = Neg (distance)
    after_float = Cast <to = 1> (after)
    beside = Constant <value_ints = [1, 2]> ()
    head_slopes = Unsqueeze (slopes, beside)
    mask = Mul (after_float, head_slopes) }}""",
    "LogN": """LogN (x, table, position_ids) => (y) {
    of_position = Gather <axis = 0> (table, position_ids)
    last = Constant <value_ints = [-1]> ()
    scale = Unsqueeze (of_position, last)
    y = Mul (x, scale) }""",
}


def alibi_slopes(num_heads: int) -> NDArray[np.float32]:
    """2^(-8 (h + 1) / n) for n heads, a power of two; then every other one of 2n heads.

    Source: Press et al. 2022, and its reference code for other numbers of heads.
    """
    power = 1 << (num_heads.bit_length() - 1)
    exact = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-4 * (2 * head + 1) / power) for head in range(num_heads - power)]
    return np.array([*exact, *between], np.float32)


def logn_table(trained_length: int, context_length: int) -> NDArray[np.float32]:
    """max(1, log of p + 1 to the base `trained_length`) for every position p (Su 2021)."""
    positions = np.arange(1, context_length + 1, dtype=np.float64)
    return np.maximum(1, np.log(positions) / log(trained_length)).astype(np.float32)
