"""Calls for attention: turn q, append k and v to the pages, attend, merge split rows."""

from __future__ import annotations

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower.calls import Calls, Constants
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.plan import (
    AnglesOperand,
    CacheOperand,
    NothingOperand,
    Operand,
    RotaryOperand,
    StepOperand,
    TensorOperand,
)
from jit_kernels.panels import PANEL_WIDTH

__all__ = ["select_attention", "select_rope_append"]


def select_rope_append(calls: Calls, op: Op) -> None:
    """Rotate q, and k and v into the pages; normalise first where asked.

    Raises UnsupportedModelError.
    """
    query, key, value = (calls.views[name] for name in op.inputs)
    if op["head_dim"] % PANEL_WIDTH:
        raise UnsupportedModelError(
            f"{op.name}: head size {op['head_dim']} is not a multiple of {PANEL_WIDTH}"
        )
    if not query.buffer == key.buffer == value.buffer:
        raise UnsupportedModelError(f"{op.name}: q, k and v do not lie side by side")
    target = calls.views[op.outputs[0]]
    turns = "cos" in op.attributes
    operands: dict[str, Operand] = {
        "qkv": calls.place(query),
        "qkv_stride": query.stride,
        "positions": StepOperand("rotary_rows" if op.attributes.get("staged") else "positions"),
        "cos": RotaryOperand(op["cos"]) if turns else NothingOperand(),
        "sin": RotaryOperand(op["sin"]) if turns else NothingOperand(),
        "slots": StepOperand("slots"),
        "q_out": calls.place(target),
        "q_stride": target.stride,
        "kv": CacheOperand(op.layer or 0),
        "num_heads": op["num_heads"],
        "num_kv_heads": op["num_kv_heads"],
        "query_scale": _tensor(op, "query_scale"),
    }
    constants: Constants = {
        "head_dim": op["head_dim"],
        "turned": turns,
        "scaled": "query_scale" in op.attributes,
        "kv_format": calls.limits.kv_format,
    }
    normed = "q_weight" in op.attributes
    if normed:
        operands |= {name: TensorOperand((op[name],)) for name in ("q_weight", "k_weight")}
        operands["eps"] = op["eps"]
    calls.claim(target)
    calls.add(
        "norm_rope_append" if normed else "rope_append",
        constants,
        operands,
        op.name,
        op.layer,
        reads=(query.buffer,),
        writes=(target.buffer,),
    )


def select_attention(calls: Calls, op: Op) -> None:
    """Attend over the pages; rows whose segments were split are merged afterwards."""
    query, target = calls.views[op.inputs[0]], calls.views[op.outputs[0]]
    heads_per_kv = op["num_heads"] // op["num_kv_heads"]
    options = op.attributes
    windowed: Constants = {
        "head_dim": op["head_dim"],
        "heads_per_kv": heads_per_kv,
        "windowed": "window" in options,
    }
    scored: Constants = {
        "kv_format": calls.limits.kv_format,
        "softcapped": "softcap" in options,
        "biased": "slopes" in options,
        "key_biased": "key_bias" in options,
    }
    shared: dict[str, Operand] = {
        "window": options.get("window", 0),
        "num_kv_heads": op["num_kv_heads"],
        "partials": StepOperand("partials"),
    }
    attend: dict[str, Operand] = {
        **shared,
        "num_items": StepOperand("num_items"),
        "items": StepOperand("items"),
        "queries": calls.place(query),
        "query_stride": query.stride,
        "pages": CacheOperand(op.layer or 0),
        "page_tables": StepOperand("page_tables"),
        "scale": op["scale"],
        "softcap": options.get("softcap", 0.0),
        "slopes": _tensor(op, "slopes"),
        **_key_bias(op),
    }
    merge: dict[str, Operand] = {
        **shared,
        "num_splits": StepOperand("num_splits"),
        "splits": StepOperand("splits"),
        "positions": StepOperand("positions"),
    }
    calls.write("attention", {**windowed, **scored}, attend, op, target, reads=[query.buffer])
    calls.write("attention_merge", windowed, merge, op, target)


def _key_bias(op: Op) -> dict[str, Operand]:
    if "key_bias" not in op.attributes:
        return dict.fromkeys(("key_bias", "cos", "sin", "segment_angles"), NothingOperand())
    return {
        "key_bias": TensorOperand((op["key_bias"],)),
        "cos": RotaryOperand(op["cos"]),
        "sin": RotaryOperand(op["sin"]),
        "segment_angles": AnglesOperand(op["cos"], op["sin"]),
    }


def _tensor(op: Op, attribute: str) -> Operand:
    """The tensor that an attribute names, nothing where the operation has none."""
    name = op.attributes.get(attribute)
    return NothingOperand() if name is None else TensorOperand((name,))
