"""The config.json of a model that DashInfer serialised; the one beside its files counts for more.

DashInfer's file lacks what its LLaMA ignores: how rotary positions are scaled, and their base
except as an argument of the serialisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.dimodel import DiModel
from dashinfer_lab.hub.families import family_of_model_type
from dashinfer_lab.hub.gguf_rope import decimal
from dashinfer_lab.tensor import TensorInfo

__all__ = ["config_of", "refuse_unread"]

_READ_FAMILIES: Final = ("llama", "qwen2")
_SWITCHES: Final = ("use_dynamic_ntk", "use_logn_attn")
_UNCHANGED: Final = {"seqlen_extrapolation": 1.0}
_COMPARED: Final = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "vocab_size", "hidden_act",
)  # fmt: skip
_ORDINARY_BASE: Final = 10000.0


def refuse_unread(model: DiModel) -> None:
    """Raise UnsupportedModelError for a model type or an operator that is not read, by name."""
    family = family_of_model_type(model.model_type)
    if family is None or family.model_type not in _READ_FAMILIES:
        raise UnsupportedModelError(
            f"DashInfer's model type {model.model_type!r:.80} is not read; read are LLaMA_v2, "
            "LLaMA_v3, Qwen_v15 and Qwen_v20. Convert the model's original checkpoint."
        )
    for operator in model.operators:
        if operator.kind.startswith("Gemm") and operator.kind not in ("Gemm", "GemmA16W8"):
            raise UnsupportedModelError(
                f"DashInfer's {operator.kind:.80} ({operator.name:.80}) is not read: weights are "
                "read in fp32, bf16, fp16 and A16W8. Convert the model's original checkpoint."
            )
    for name in _SWITCHES:
        if model.build.get(name, "False") != "False":
            raise UnsupportedModelError(f"{name} of DashInfer's model is not supported")
    for operator in model.operators:
        for name, neutral in _UNCHANGED.items():
            if operator.real(name) not in (None, neutral):
                raise UnsupportedModelError(
                    f"{name} {operator.real(name)} of DashInfer's {operator.name:.80} is not "
                    "supported"
                )


def config_of(
    model: DiModel,
    shapes: Mapping[str, TensorInfo],
    beside: Mapping[str, object] | None,
    *,
    is_tied: bool,
) -> Mapping[str, object]:
    """Return the model's config.json, made from its sizes, or the one that lies beside it.

    shapes: of the weights under Hugging Face's names.  is_tied: the head equals the embedding.
    Raises CheckpointError where the two differ, or where neither tells the rotary base.
    """
    made = _sizes(model, shapes)
    if beside is None:
        rope = {"rope_theta": _rotary_base(model)}
        length = model.build.get("model_sequence_length", "")
        context = {"max_position_embeddings": int(length)} if length.isdecimal() else {}
        return {**made, **rope, **context, "tie_word_embeddings": is_tied}
    differing = [
        f"{name} is {beside[name]!r:.80}, {made[name]!r:.80} in DashInfer's file"
        for name in _COMPARED
        if beside.get(name) is not None and beside[name] != made[name]
    ]
    if differing:
        raise CheckpointError(f"config.json is of another model: {'; '.join(differing)}")
    return beside


def _sizes(model: DiModel, shapes: Mapping[str, TensorInfo]) -> dict[str, object]:
    family = family_of_model_type(model.model_type)
    assert family is not None  # what has none was refused
    vocabulary, hidden = _matrix(shapes, "model.embed_tokens.weight")
    intermediate, _ = _matrix(shapes, "model.layers.0.mlp.gate_proj.weight")
    queries, _ = _matrix(shapes, "model.layers.0.self_attn.q_proj.weight")
    return {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": queries // max(1, model.num_heads),
        "vocab_size": vocabulary,
        "rms_norm_eps": decimal(model.norm_eps),
        "hidden_act": model.activation,
    }


def _matrix(shapes: Mapping[str, TensorInfo], name: str) -> tuple[int, int]:
    if name not in shapes or len(shapes[name].shape) != 2:
        raise CheckpointError(f"DashInfer's file holds no weight for {name}: get it again")
    rows, columns = shapes[name].shape
    return rows, columns


def _rotary_base(model: DiModel) -> float:
    """The base that an operator has, or that the serialisation was told."""
    stated = {operator.real("rotary_base") for operator in model.operators} - {None}
    if not stated:
        try:
            stated = {float(model.build["rotary_base"])}
        except (KeyError, ValueError):
            stated = set()
    ignored = model.model_type == "LLaMA_v3" and stated <= {_ORDINARY_BASE}
    if len(stated) != 1 or ignored:
        raise CheckpointError(
            f"DashInfer's file of this {model.model_type} does not tell the base of rotary "
            "positions. Put the original config.json beside it."
        )
    return float(decimal(stated.pop()))
