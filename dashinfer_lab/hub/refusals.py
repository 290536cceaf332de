"""Keys of a config.json that would change the numbers if they were ignored, refused by name."""

from __future__ import annotations

from typing import cast

from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, size_of, switch_of
from dashinfer_lab.hub.families import Family

__all__ = ["refuse_unsupported", "refuse_window"]

# Keys that change an architecture, and the values under which they change nothing.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "quantization_config": (),
    "pretraining_tp": (1,),
    "hidden_act": ("silu", "swish"),
    "hidden_activation": ("silu", "swish"),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "query_pre_attn_scalar": (),
    "attention_multiplier": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "scale_emb": (1,),
    "scale_depth": (),
    "clip_qkv": (0,),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
    "use_logn_attn": (False,),
    "use_dynamic_ntk": (False,),
    "alibi": (False,),
    "use_alibi": (False,),
    "position_embedding_type": ("rope", "rotary", "absolute"),
    "no_rope_layers": ([],),
    "no_rope_layer_interval": (0,),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "n_routed_experts": (0,),
    "num_nextn_predict_layers": (0,),
    "parallel_attn": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
}


def refuse_unsupported(config: Config) -> None:
    """Raise UnsupportedModelError naming the first key that would change the numbers."""
    for key, neutral in _NEUTRAL.items():
        value = config.get(key)
        if value is not None and value not in neutral:
            raise UnsupportedModelError(
                f"{key} {value!r:.200} is not supported for this architecture. Use a "
                "checkpoint without it."
            )
    dtypes = {str(config[key]) for key in ("dtype", "torch_dtype") if config.get(key) is not None}
    if len(dtypes) > 1:
        raise CheckpointError(f"dtype and torch_dtype differ: {', '.join(sorted(dtypes))}")


def refuse_window(config: Config, family: Family, context_length: int, num_layers: int) -> None:
    """Refuse attention limited to a window, unless every context lies within it.

    A window of w shows a query the w last keys, its own among them; it holds where the family has
    one, is switched on, and, with a switch, from layer max_window_layers on. Raises
    UnsupportedModelError.
    """
    if config.get("sliding_window") is not None and family.window == "none":
        raise UnsupportedModelError(
            f"sliding_window {config['sliding_window']!r:.100} is not supported for this "
            "architecture. Use a checkpoint without it."
        )
    if not _has_window(config, family, num_layers):
        return
    window = size_of(config, "sliding_window")
    if window < context_length:
        raise UnsupportedModelError(
            f"sliding_window {window} is shorter than the context of {context_length}; attention "
            f"within a window is not supported yet. With max_position_embeddings {window} in "
            "config.json the model runs exactly, on contexts up to that length."
        )


def _has_window(config: Config, family: Family, num_layers: int) -> bool:
    """Whether any layer attends within a window."""
    kinds = config.get("layer_types")
    if kinds is not None:
        listed = cast("list[object]", kinds) if isinstance(kinds, list) else [kinds]
        unknown = [k for k in listed if k not in ("full_attention", "sliding_attention")]
        if unknown:
            raise UnsupportedModelError(f"layer_types holds {unknown[0]!r:.100}: not supported")
    if family.window == "none" or config.get("sliding_window") is None:
        return False
    if family.window == "always":
        return True
    if not switch_of(config, "use_sliding_window"):
        return False
    if isinstance(kinds, list):
        return "sliding_attention" in kinds
    first = config.get("max_window_layers", 28)
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise CheckpointError(f"max_window_layers is {first!r:.100}; expected an integer >= 0")
    return first < num_layers
