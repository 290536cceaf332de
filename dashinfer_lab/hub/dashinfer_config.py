"""The config.json of a model that DashInfer serialised; the one beside its files counts for more.

DashInfer's file lacks what its models ignore, how rotary positions are scaled above all, and states
lengths and bases as arguments of the serialisation if at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.dashinfer_names import NAMES
from dashinfer_lab.hub.dimodel import DiModel
from dashinfer_lab.hub.families import family_of_model_type
from dashinfer_lab.hub.gguf_rope import decimal
from dashinfer_lab.hub.model_config import model_config
from dashinfer_lab.tensor import TensorInfo

__all__ = ["config_of", "is_config", "read_family"]

Shapes = Mapping[str, TensorInfo]
"""Of the weights, under Hugging Face's names."""

_LAYER_COUNTS: Final = ("num_hidden_layers", "n_layer", "num_layers")
_NTK, _LOGN = "ntk_model_embed", "logn_model_embedding"
_SWITCHES: Final = ("use_dynamic_ntk", "use_logn_attn")
_EXTRAPOLATION: Final = "seqlen_extrapolation"
_INVERSE_FREQUENCIES: Final = {"ChatGLM_v2": 1, "ChatGLM_v3": 2, "ChatGLM_v4": 2}
_COMPARED: Final = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
}
_ORDINARY_BASE: Final = 10000.0


def is_config(beside: Mapping[str, object]) -> bool:
    """Whether a file called config.json describes a model: DashInfer's settings state no sizes."""
    return any(key in beside for key in _LAYER_COUNTS)


def read_family(model: DiModel) -> str:
    """Return our `model_type` of a model.

    Raises UnsupportedModelError for a model type or an operator that is not read, by name.
    """
    family = family_of_model_type(model.model_type)
    if family is None or family.model_type not in NAMES:
        raise UnsupportedModelError(
            f"DashInfer's model type {model.model_type!r:.80} is not read; read are LLaMA_v2, "
            "LLaMA_v3, Qwen_v10, Qwen_v15, Qwen_v20, ChatGLM_v2, ChatGLM_v3 and ChatGLM_v4. "
            "Convert the model's original checkpoint."
        )
    for operator in model.operators:
        if operator.kind.startswith("Gemm") and operator.kind not in ("Gemm", "GemmA16W8"):
            raise UnsupportedModelError(
                f"DashInfer's {operator.kind:.80} ({operator.name:.80}) is not read: weights are "
                "read in fp32, bf16, fp16 and A16W8. Convert the model's original checkpoint."
            )
    for name in () if family.model_type == "qwen" else _SWITCHES:
        if model.build.get(name, "False") != "False":
            raise UnsupportedModelError(f"{name} of DashInfer's model is not supported")
    for operator in model.operators:
        frequencies = operator.integer("invfreq_type")
        if operator.real(_EXTRAPOLATION) not in (None, 1.0):
            raise UnsupportedModelError(
                f"{_EXTRAPOLATION} {operator.real(_EXTRAPOLATION)} of DashInfer's "
                f"{operator.name:.80} is not supported"
            )
        if frequencies not in (None, _INVERSE_FREQUENCIES.get(model.model_type)):
            raise UnsupportedModelError(
                f"invfreq_type {frequencies} of DashInfer's {operator.name:.80} is not supported "
                f"for {model.model_type}"
            )
    return family.model_type


def config_of(
    model: DiModel, shapes: Shapes, beside: Mapping[str, object] | None, *, is_tied: bool
) -> Mapping[str, object]:
    """Return the model's config.json, made from its sizes, or the one that lies beside it.

    is_tied: the head equals the embedding. Raises CheckpointError where the two differ, or where
    neither tells the rotary base.
    """
    family = family_of_model_type(model.model_type)
    assert family is not None  # what has none was refused
    made = {"architectures": [family.architecture], **_SIZES[family.model_type](model, shapes)}
    if beside is None:
        rope = _ROTARY[family.model_type](model)
        return {**made, **rope, "tie_word_embeddings": is_tied}
    if family.is_called(beside.get("model_type")):
        # ChatGLM's generations read one key in two ways, and call themselves alike.
        beside = {**beside, "model_type": made["model_type"]}
    theirs, ours = model_config(beside), model_config(made)
    differing = [
        f"{key} is {getattr(theirs, name)!r:.80}, {getattr(ours, name)!r:.80} in DashInfer's file"
        for key, name in _COMPARED.items()
        if getattr(theirs, name) != getattr(ours, name)
    ]
    if differing:
        raise CheckpointError(f"config.json is of another model: {'; '.join(differing)}")
    return beside


def _llama_sizes(model: DiModel, shapes: Shapes) -> dict[str, object]:
    family = family_of_model_type(model.model_type)
    vocabulary, hidden = _matrix(shapes, "model.embed_tokens.weight")
    intermediate, _ = _matrix(shapes, "model.layers.0.mlp.gate_proj.weight")
    queries, _ = _matrix(shapes, "model.layers.0.self_attn.q_proj.weight")
    return {
        "model_type": family and family.model_type,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": queries // max(1, model.num_heads),
        "vocab_size": vocabulary,
        "rms_norm_eps": decimal(model.norm_eps),
        "hidden_act": model.activation,
        **_length(model, "max_position_embeddings"),
    }


def _qwen_sizes(model: DiModel, shapes: Shapes) -> dict[str, object]:
    vocabulary, hidden = _matrix(shapes, "transformer.wte.weight")
    width, _ = _matrix(shapes, "transformer.h.0.mlp.w1.weight")
    return {
        "model_type": "qwen",
        "hidden_size": hidden,
        "intermediate_size": 2 * width,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "vocab_size": vocabulary,
        "layer_norm_epsilon": decimal(model.norm_eps),
        # The length is where both begin, so that neither changes a number before the context ends.
        "use_dynamic_ntk": any(each.integer(_NTK) for each in model.operators),
        "use_logn_attn": any(each.integer(_LOGN) for each in model.operators),
        **_length(model, "seq_length"),
        **_length(model, "max_position_embeddings"),
    }


def _chatglm_sizes(model: DiModel, shapes: Shapes) -> dict[str, object]:
    vocabulary, hidden = _matrix(shapes, "transformer.embedding.word_embeddings.weight")
    prefix = "transformer.encoder.layers.0"
    width, _ = _matrix(shapes, f"{prefix}.mlp.dense_h_to_4h.weight")
    outputs, _ = _matrix(shapes, f"{prefix}.self_attention.query_key_value.weight")
    return {
        "model_type": model.model_type,
        "hidden_size": hidden,
        "ffn_hidden_size": width // 2,
        "num_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "multi_query_attention": True,
        "multi_query_group_num": model.num_kv_heads,
        "kv_channels": outputs // (model.num_heads + 2 * model.num_kv_heads),
        "padded_vocab_size": vocabulary,
        "layernorm_epsilon": decimal(model.norm_eps),
        "add_qkv_bias": f"{prefix}.self_attention.query_key_value.bias" in shapes,
        **_length(model, "seq_length"),
    }


def _length(model: DiModel, key: str) -> dict[str, object]:
    """What the serialisation was told of the longest sequence, 2048 where nobody told it."""
    length = model.build.get("model_sequence_length", "")
    return {key: int(length)} if length.isdecimal() else {}


def _matrix(shapes: Shapes, name: str) -> tuple[int, int]:
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
        raise _untold(model, "base")
    return float(decimal(stated.pop()))


def _rotary_ratio(model: DiModel) -> float:
    stated = {operator.real("rope_ratio") for operator in model.operators} - {None}
    if len(stated) != 1:
        raise _untold(model, "ratio")
    return float(decimal(stated.pop()))


def _untold(model: DiModel, what: str) -> CheckpointError:
    return CheckpointError(
        f"DashInfer's file of this {model.model_type} does not tell the {what} of rotary "
        "positions. Put the original config.json beside it."
    )


_SIZES: Final[Mapping[str, Callable[[DiModel, Shapes], dict[str, object]]]] = {
    "llama": _llama_sizes,
    "qwen2": _llama_sizes,
    "qwen": _qwen_sizes,
    "chatglm": _chatglm_sizes,
}
_ROTARY: Final[Mapping[str, Callable[[DiModel], Mapping[str, object]]]] = {
    "llama": lambda model: {"rope_theta": _rotary_base(model)},
    "qwen2": lambda model: {"rope_theta": _rotary_base(model)},
    "qwen": lambda model: {"rotary_emb_base": _rotary_base(model)},
    "chatglm": lambda model: {"rope_ratio": _rotary_ratio(model)},
}
