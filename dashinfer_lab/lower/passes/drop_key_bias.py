"""linear(k) + bias -> linear(k), and attention adds what the bias would: for keys kept as int8.

A bias that is the same for every token may be hundreds of times a key's own size; int8 codes of
their sum would hold next to nothing of the key. Keys that are normalised keep it: a norm is not
linear. Knows nothing of how attention adds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.ops import Op, consumers, maker

__all__ = ["drop_key_bias"]


def drop_key_bias(ops: Sequence[Op]) -> list[Op]:
    """Take the bias from every linear that makes keys which turn; name it in their attention.

    Raises UnsupportedModelError where the angle of a position is not the same for all requests,
    and where something else reads the keys.
    """
    result = list(ops)
    for append in ops:
        if append.kind != "rope_append" or "cos" not in append.attributes:
            continue
        linear = maker(result, append.inputs[1])
        if linear is None or linear.kind != "linear" or "q_weight" in append.attributes:
            continue
        place = linear.outputs.index(append.inputs[1])
        bias = linear["biases"][place]
        if bias is None:
            continue
        if append.attributes.get("staged"):
            raise UnsupportedModelError(
                f"{append.name}: biased keys turn by a base that follows the prompt, which "
                "int8 cannot keep apart: give kv_cache_dtype='bf16'"
            )
        if len(consumers(result, append.inputs[1])) > 1:
            raise UnsupportedModelError(
                f"{append.name}: what else reads its biased keys would miss the bias, which int8 "
                "keeps apart: give kv_cache_dtype='bf16'"
            )
        kept = tuple(None if i == place else b for i, b in enumerate(linear["biases"]))
        reader = next(op for op in result if op.inputs[:1] == append.outputs[:1])
        tables = {name: append[name] for name in ("cos", "sin")}
        for old, new in (
            (linear, linear.with_attributes(biases=kept)),
            (reader, reader.with_attributes(key_bias=bias, **tables)),
        ):
            result[next(i for i, op in enumerate(result) if op is old)] = new
    return result
