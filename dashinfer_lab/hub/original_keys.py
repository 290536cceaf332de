"""config.json of models that bring code of their own, in the words that transformers has.

Every key that would change the numbers is either translated or refused by name; the code itself is
never read. Sources: the configuration files that ChatGLM's repositories publish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, positive_of, size_of, switch_of

__all__ = ["in_common_words"]


def in_common_words(model_type: str, config: Config) -> Config:
    """Return a config.json with the keys of transformers; most families' are so already.

    Raises UnsupportedModelError for what cannot be run, CheckpointError for what makes no sense.
    """
    translate = _TRANSLATIONS.get(model_type)
    return translate(config) if translate else config


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


def _chatglm(config: Config) -> Config:
    _require_settled(config, _CHATGLM_SETTLED)
    sizes = {theirs: size_of(config, ours) for ours, theirs in _CHATGLM_SIZES.items()}
    heads = size_of(config, "num_attention_heads")
    groups = size_of(config, "multi_query_group_num", 1)
    return {
        **config,
        **sizes,
        "num_key_value_heads": groups if switch_of(config, "multi_query_attention") else heads,
        "attention_bias": switch_of(config, "add_qkv_bias"),
        "rms_norm_eps": positive_of(config, "layernorm_epsilon", 1e-5),
        "rope_parameters": _chatglm_rope(config),
        "rope_theta": None,
    }


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


def _require_settled(config: Config, settled: Mapping[str, tuple[object, ...]]) -> None:
    for key, values in settled.items():
        value = config.get(key)
        if value is not None and value not in values:
            raise UnsupportedModelError(
                f"{key} {value!r:.200} is not supported for this architecture. Use a checkpoint "
                "without it."
            )


_TRANSLATIONS: Final[Mapping[str, Callable[[Config], Config]]] = {"chatglm": _chatglm}
