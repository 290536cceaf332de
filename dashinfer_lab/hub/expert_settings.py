"""Mixture of experts as a config.json states it; knows no weights."""

from __future__ import annotations

from typing import cast

from dashinfer_lab.config import ExpertConfig
from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub.config_values import Config, size_of, switch_of
from dashinfer_lab.hub.families import Family

__all__ = ["EXPERT_COUNT_KEYS", "expert_settings"]

EXPERT_COUNT_KEYS = ("num_experts", "num_local_experts")
"""Spellings of one key: transformers knows a model's experts by either name."""

_EXPERT_LIMIT = 1 << 12


def expert_settings(config: Config, family: Family, num_layers: int) -> ExpertConfig | None:
    """Return the mixture of experts of an architecture that has one.

    Raises CheckpointError for values that are missing, make no sense or contradict one another.
    """
    defaults = family.experts
    if defaults is None:
        return None
    counts = {
        size_of(config, key, limit=_EXPERT_LIMIT)
        for key in EXPERT_COUNT_KEYS
        if config.get(key) is not None
    }
    if len(counts) > 1:
        raise CheckpointError(f"{' and '.join(EXPERT_COUNT_KEYS)} differ: {sorted(counts)}")
    count = counts.pop() if counts else defaults.count
    per_token = size_of(config, "num_experts_per_tok", defaults.per_token)
    if per_token > count:
        raise CheckpointError(f"num_experts_per_tok {per_token} is above the {count} experts")
    if defaults.size is None:
        return ExpertConfig(count, per_token, size_of(config, "intermediate_size"))
    shared_key = "shared_expert_intermediate_size"
    shared = defaults.shared_size and size_of(config, shared_key, defaults.shared_size)
    return ExpertConfig(
        count=count,
        per_token=per_token,
        intermediate_size=size_of(config, "moe_intermediate_size", defaults.size),
        shared_size=shared,
        renormalise=switch_of(config, "norm_topk_prob"),
        dense_layers=_dense_layers(config, num_layers),
    )


def _dense_layers(config: Config, num_layers: int) -> tuple[int, ...]:
    """Return the layers without experts: those listed, and all but every decoder_sparse_step-th."""
    listed = config.get("mlp_only_layers")
    layers = cast("list[object]", listed if isinstance(listed, list) else [])
    if listed is not None and (listed != layers or any(type(it) is not int for it in layers)):
        raise CheckpointError(f"mlp_only_layers is {listed!r:.100}; expected a list of integers")
    step = size_of(config, "decoder_sparse_step", 1)
    return tuple(i for i in range(num_layers) if i in layers or (i + 1) % step)
