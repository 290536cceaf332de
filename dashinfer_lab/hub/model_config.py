"""config.json to `ModelConfig`: sizes checked, what cannot be run refused by name.

Reads the spellings of transformers 4 and 5 (`torch_dtype` or `dtype`, see also `rope_settings`).
Knows no weights. Where a key is absent or null, the default is that of the architecture's own
configuration class in transformers: see `families`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

from dashinfer_lab.config import ModelConfig, RopeConfig, ntk_stage
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, positive_of, size_of, switch_of
from dashinfer_lab.hub.expert_settings import expert_settings
from dashinfer_lab.hub.families import (
    Family,
    families,
    family_of_architecture,
    family_of_model_type,
)
from dashinfer_lab.hub.local_rope import rope_by_kind
from dashinfer_lab.hub.original_keys import in_common_words
from dashinfer_lab.hub.refusals import refuse_unsupported
from dashinfer_lab.hub.rope_settings import rope_context_length
from dashinfer_lab.hub.windows import layer_windows, sliding_layers

__all__ = ["model_config"]


class _Bounds(TypedDict, total=False):
    attention_scale: float
    attention_softcap: float | None
    logit_softcap: float | None


_LAYER_LIMIT = 1 << 12
_ROPE_TABLE_LIMIT = 1 << 27  # elements: a million positions with heads of 128


def model_config(config: Mapping[str, object]) -> ModelConfig:
    """Return the architecture that a config.json describes.

    Raises CheckpointError for sizes that are missing or make no sense and for keys that
    contradict one another, UnsupportedModelError for what this version cannot run.
    """
    family = _family(config)
    config, peculiarities = in_common_words(family.model_type, config)
    refuse_unsupported(config, family)
    num_heads = size_of(config, "num_attention_heads")
    num_kv_heads = size_of(config, "num_key_value_heads", family.num_kv_heads or num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"num_attention_heads {num_heads} is not divisible by num_key_value_heads "
            f"{num_kv_heads}"
        )
    num_layers = size_of(config, "num_hidden_layers", limit=_LAYER_LIMIT)
    stated_length = size_of(config, "max_position_embeddings", family.context_length)
    rope, local_rope = rope_by_kind(config, stated_length, family)
    context_length = rope_context_length(rope, stated_length)
    head_dim = _head_dim(config, family, num_heads)
    _require_whole_pairs(rope, head_dim)
    stages = 1 + ntk_stage(context_length, peculiarities.get("ntk_length"))
    if context_length * head_dim * stages > _ROPE_TABLE_LIMIT:
        raise UnsupportedModelError(
            f"max_position_embeddings {context_length} with heads of {head_dim} needs too large a "
            f"table of positions; lower it to {_ROPE_TABLE_LIMIT // head_dim // stages} or less"
        )
    return ModelConfig(
        model_type=family.model_type,
        vocab_size=size_of(config, "vocab_size"),
        hidden_size=size_of(config, "hidden_size"),
        intermediate_size=size_of(config, "intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=positive_of(config, "rms_norm_eps", family.norm_eps),
        context_length=context_length,
        rope=rope,
        tie_word_embeddings=switch_of(config, "tie_word_embeddings", default=family.tied),
        attention_bias=bool(family.bias_key)
        and switch_of(config, str(family.bias_key), default=family.bias_default),
        experts=expert_settings(config, family, num_layers),
        mlp_bias=bool(family.mlp_bias_key) and switch_of(config, str(family.mlp_bias_key)),
        **_score_bounds(config, family),
        **peculiarities,
        local_rope=local_rope,
        local_layers=sliding_layers(config, family, num_layers) if local_rope else (),
        windows=layer_windows(config, family, context_length, num_layers),
    )


def _require_whole_pairs(rope: RopeConfig, head_dim: int) -> None:
    turned = int(head_dim * rope.partial_factor)
    if turned % 2 or head_dim * rope.partial_factor < 2:
        raise UnsupportedModelError(
            f"partial_rotary_factor {rope.partial_factor} of heads of {head_dim} turns no whole "
            "number of pairs"
        )
    for name in ("short_factors", "long_factors"):
        count = len(getattr(rope, name))
        if rope.scaling == "longrope" and count != turned // 2:
            raise CheckpointError(
                f"{name.removesuffix('s')} has {count} numbers for the {turned // 2} pairs of a "
                "head that turn"
            )


def _score_bounds(config: Config, family: Family) -> _Bounds:
    """Return Gemma's scale of scores and bounds of scores and logits; none for other families."""
    if family.score_scalar is None:
        return {}
    scalar = positive_of(config, "query_pre_attn_scalar", family.score_scalar)
    of_scores, of_logits = family.softcaps
    return {
        "attention_scale": scalar**-0.5,
        "attention_softcap": _bound(config, "attn_logit_softcapping", of_scores),
        "logit_softcap": _bound(config, "final_logit_softcapping", of_logits),
    }


def _bound(config: Config, key: str, default: float | None) -> float | None:
    """Return a bound; null is none, and absence the default."""
    return None if config.get(key, default) is None else positive_of(config, key, default)


def _family(config: Config) -> Family:
    """Return the family on which architectures and model_type agree."""
    found = config.get("architectures")
    names = cast("list[object]", found) if isinstance(found, list) else []
    stated = config.get("model_type")
    supported = ", ".join(family.architecture for family in families())
    named = names or [stated]
    family = family_of_architecture(str(names[0])) if names else family_of_model_type(stated)
    if len(named) != 1 or family is None:
        raise UnsupportedModelError(
            f"architecture {', '.join(map(str, named))} is not supported; supported: {supported}"
        )
    if stated is not None and not family.is_called(stated):
        raise UnsupportedModelError(
            f"architecture {names[0]} with model_type {stated!r} is not supported; supported: "
            f"{family.architecture} with model_type {family.model_type!r}"
        )
    return family


def _head_dim(config: Config, family: Family, num_heads: int) -> int:
    hidden_size = size_of(config, "hidden_size")
    stated = config.get("head_dim") is not None or family.head_dim is not None
    if not stated and hidden_size % num_heads:
        raise CheckpointError(
            f"hidden_size {hidden_size} is not divisible by num_attention_heads {num_heads}, and "
            "there is no head_dim"
        )
    head_dim = size_of(config, "head_dim", family.head_dim or hidden_size // num_heads)
    if head_dim % 2:
        raise UnsupportedModelError(f"head_dim {head_dim} is odd; rotary embedding turns pairs")
    return head_dim
