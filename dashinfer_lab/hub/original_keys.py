"""config.json of models that bring code of their own, in the words that transformers has.

Every key that would change the numbers is either translated or refused by name; the code itself is
never read. Sources: the configuration files that Baichuan's, ChatGLM's and Qwen's repositories
publish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypedDict

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, positive_of, size_of, switch_of

__all__ = ["Peculiarities", "in_common_words"]


class Peculiarities(TypedDict, total=False):
    """What of these models transformers has no key for, as `ModelConfig` names it."""

    alibi: bool
    unit_head: bool
    logn: int
    ntk_length: int


Translated = tuple[Config, Peculiarities]


def in_common_words(model_type: str, config: Config) -> Translated:
    """Return a config.json with the keys of transformers, as most families have it, and the rest.

    Raises UnsupportedModelError for what cannot be run, CheckpointError for what makes no sense.
    """
    translate = _TRANSLATIONS.get(model_type)
    return translate(config) if translate else (config, {})


_CHATGLM_SIZES: Final = {
    "num_layers": "num_hidden_layers",
    "padded_vocab_size": "vocab_size",
    "ffn_hidden_size": "intermediate_size",
    "kv_channels": "head_dim",
    "seq_length": "max_position_embeddings",
}
_CHATGLM_SETTLED: Final[Mapping[str, tuple[object, ...]]] = {
    "position_encoding_2d": (False,),  # ChatGLM-6B, another architecture
    "rmsnorm": (True,),
    "post_layer_norm": (True,),
    "apply_residual_connection_post_layernorm": (False,),
    "add_bias_linear": (False,),
    "original_rope": (True,),
    "interleaved_qkv": (False,),
    "pre_seq_len": (0,),
    "quantization_bit": (0,),
    "rope_theta": (10000,),
    "rope_scaling": (),
    "rope_parameters": (),
}
_SMALLEST_RATIO_OF_A_BASE: Final = 50


def _chatglm(config: Config) -> Translated:
    _require_settled(config, _CHATGLM_SETTLED)
    sizes = {theirs: size_of(config, ours) for ours, theirs in _CHATGLM_SIZES.items()}
    heads = size_of(config, "num_attention_heads")
    groups = size_of(config, "multi_query_group_num", 1)
    common = {
        **config,
        **sizes,
        "num_key_value_heads": groups if switch_of(config, "multi_query_attention") else heads,
        "attention_bias": switch_of(config, "add_qkv_bias"),
        "rms_norm_eps": positive_of(config, "layernorm_epsilon", 1e-5),
        "rope_parameters": _chatglm_rope(config),
        "rope_theta": None,
    }
    return common, {}


def _chatglm_rope(config: Config) -> Config:
    """ChatGLM 3 and GLM 4 turn from a base times rope_ratio; ChatGLM 2 divides positions by it."""
    ratio = positive_of(config, "rope_ratio", 1.0)
    name = config.get("model_type")
    if ratio == 1 or name in ("ChatGLM_v3", "ChatGLM_v4"):
        return {"rope_type": "default", "rope_theta": 10000 * ratio}
    if name == "ChatGLM_v2":
        return {"rope_type": "linear", "factor": ratio}
    if ratio < _SMALLEST_RATIO_OF_A_BASE:
        raise UnsupportedModelError(
            f"rope_ratio {ratio:g} stretches positions in ChatGLM 2 and the base in later models, "
            'and config.json does not say which this is. Set its model_type to "ChatGLM_v2" or '
            '"ChatGLM_v3".'
        )
    return {"rope_type": "default", "rope_theta": 10000 * ratio}


_BAICHUAN_SETTLED: Final[Mapping[str, tuple[object, ...]]] = {
    "rope_theta": (10000,),
    "rope_scaling": (),
    "rope_parameters": (),
}
_GENERATION_OF: Final = {"Baichuan": 1, "Baichuan_v2": 2}
_VOCABULARIES: Final = {64000: 1, 125696: 2}
_SIZE_OF_13B, _SIZE_OF_7B = 5120, 4096


def _baichuan(config: Config) -> Translated:
    """7B turns heads, 13B has ALiBi; the head of the second generation has rows of length 1."""
    _require_settled(config, _BAICHUAN_SETTLED)
    heads = size_of(config, "num_attention_heads")
    _require_settled(config, {"num_key_value_heads": (heads,), "head_dim": ()})
    turns = config.get("max_position_embeddings") is not None
    strange = _SIZE_OF_13B if turns else _SIZE_OF_7B
    if config.get("hidden_size") == strange:
        raise UnsupportedModelError(
            f"hidden_size {strange} {'with' if turns else 'without'} max_position_embeddings is "
            "neither Baichuan 7B, which has that key and turns heads, nor 13B, which has "
            "model_max_length alone and ALiBi. Use the config.json that was published."
        )
    second = _baichuan_generation(config) == 2
    if second and switch_of(config, "tie_word_embeddings"):
        raise UnsupportedModelError("tie_word_embeddings is not supported with Baichuan 2's head")
    length = "max_position_embeddings" if turns else "model_max_length"
    common = {**config, "max_position_embeddings": size_of(config, length, 4096)}
    return common, {"alibi": not turns, "unit_head": second}


def _baichuan_generation(config: Config) -> int:
    """1 or 2, by DashInfer's name, by a key that only the second has, or by the vocabulary."""
    named = _GENERATION_OF.get(str(config.get("model_type")))
    if named is not None:
        return named
    if "z_loss_weight" in config:
        return 2
    vocab_size = size_of(config, "vocab_size")
    if vocab_size not in _VOCABULARIES:
        raise UnsupportedModelError(
            f"vocab_size {vocab_size} is neither Baichuan's 64000 nor Baichuan 2's 125696, whose "
            'head is another. Set model_type in config.json to "Baichuan" or "Baichuan_v2".'
        )
    return _VOCABULARIES[vocab_size]


# The first release of Qwen 7B calls its sizes otherwise than those that followed.
_QWEN_SIZES: Final = {
    "vocab_size": ("padded_vocab_size", "vocab_size"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
}
_QWEN_SETTLED: Final[Mapping[str, tuple[object, ...]]] = {
    "no_bias": (True,),
    "rotary_pct": (1,),
    "scale_attn_weights": (True,),
    "pos_emb": ("rotary",),
    "visual": (),
    "audio": (),
    "rope_scaling": (),
    "rope_parameters": (),
    "rope_theta": (),
}


def _qwen(config: Config) -> Translated:
    """Twice the width of its gates is stated; logn and NTK are for what exceeds seq_length."""
    _require_settled(config, _QWEN_SETTLED)
    sizes = {ours: _size_by(config, *theirs) for ours, theirs in _QWEN_SIZES.items()}
    width = _size_by(config, "intermediate_size", "ffn_hidden_size")
    if width % 2:
        raise CheckpointError(f"intermediate_size {width} is odd; gate and up have half of it each")
    heads = sizes["num_attention_heads"]
    _require_settled(config, {"num_key_value_heads": (heads,)})
    _require_settled(config, {"kv_channels": (sizes["hidden_size"] / heads,), "head_dim": ()})
    trained = size_of(config, "seq_length")
    if trained <= 2 or sizes["hidden_size"] // heads <= 2:
        raise CheckpointError(
            f"seq_length {trained} with heads of {sizes['hidden_size'] // heads} makes no sense; "
            "both are above 2"
        )
    common = {
        **config,
        **sizes,
        "intermediate_size": width // 2,
        "rms_norm_eps": positive_of(config, "layer_norm_epsilon", 1e-6),
        "rope_theta": positive_of(config, "rotary_emb_base", 10000.0),
        "use_dynamic_ntk": None,
        "use_logn_attn": None,
    }
    beyond: Peculiarities = {}
    if switch_of(config, "use_logn_attn", default=True):
        beyond["logn"] = trained
    if switch_of(config, "use_dynamic_ntk", default=True):
        beyond["ntk_length"] = trained
    return common, beyond


def _size_by(config: Config, *keys: str) -> int:
    """Return the size under the first of `keys` that is there."""
    return size_of(config, next((key for key in keys if config.get(key) is not None), keys[0]))


def _require_settled(config: Config, settled: Mapping[str, tuple[object, ...]]) -> None:
    for key, values in settled.items():
        value = config.get(key)
        if value is not None and value not in values:
            raise UnsupportedModelError(
                f"{key} {value!r:.200} is not supported for this architecture. Use a checkpoint "
                "without it."
            )


_TRANSLATIONS: Final[Mapping[str, Callable[[Config], Translated]]] = {
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "qwen": _qwen,
}
