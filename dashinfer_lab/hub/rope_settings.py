"""Rotary embedding as a config.json states it, in the spellings of transformers 4 and 5.

Four has `rope_theta` and `rope_scaling` ("type" or "rope_type"), five has `rope_parameters`; where
both are given they must agree. Computes no angle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log, sqrt
from typing import cast

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub.config_values import Config, mapping_of, positive_of, size_of, switch_of
from dashinfer_lab.hub.families import Family

__all__ = ["rope_context_length", "rope_settings"]

_SPELLINGS = {"default": "none", "none": "none"}
_SCALINGS = ("none", "linear", "dynamic", "llama3", "yarn", "longrope")
# Phi 3's configuration class takes these for LongRoPE, of which it had no name at first.
_PHI3_SPELLINGS = {"su": "longrope", "yarn": "longrope"}
_FACTORS = ("short_factor", "long_factor")
_UNSCALED = {"rope_theta", "partial_rotary_factor"}
_SHARED = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
# Keys that say nothing of the angles, or what other keys say already.
_UNDERSTOOD = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "attention_factor", "mscale",
    "mscale_all_dim", "beta_fast", "beta_slow", "truncate", "finetuned", *_SHARED, *_FACTORS,
}  # fmt: skip


def rope_settings(config: Config, context_length: int, family: Family) -> RopeConfig:
    """Return the rotary embedding; `context_length` is the model's max_position_embeddings.

    Raises UnsupportedModelError for a scaling this version cannot apply, by name, CheckpointError
    for values that are missing, make no sense or contradict one another.
    """
    scaling, given = _scaling(config, _PHI3_SPELLINGS if family.model_type == "phi3" else {})
    partial = _partial_factor(_agreed(config, "partial_rotary_factor"), family)
    theta = positive_of({"rope_theta": _agreed(config, "rope_theta")}, "rope_theta", family.theta)
    if scaling == "longrope" and family.local_theta is not None:
        raise UnsupportedModelError(
            "rope scaling 'longrope' is not supported for this architecture"
        )
    stated_length = family.original_length or context_length
    rope = _scaled(config, scaling, given, theta, context_length, stated_length)
    return replace(rope, partial_factor=partial, interleaved=family.interleaved)


def _partial_factor(stated: object, family: Family) -> float:
    """Return the share of a head that turns; refused where the architecture has none."""
    if family.partial_rotary is None and stated not in (None, 1):
        raise UnsupportedModelError(
            f"partial_rotary_factor {stated!r:.100} is not supported for this architecture"
        )
    key = "partial_rotary_factor"
    partial = positive_of({key: stated}, key, family.partial_rotary or 1.0)
    if partial > 1:
        raise CheckpointError(f"{key} is {partial}; expected at most 1")
    return partial


def _scaled(
    config: Config,
    scaling: str,
    given: Config,
    theta: float,
    context_length: int,
    default_original: int,
) -> RopeConfig:
    """Return the embedding of whole heads."""
    if scaling == "none":
        return RopeConfig(theta=theta)
    if scaling in ("linear", "dynamic"):
        return RopeConfig(theta=theta, scaling=scaling, factor=positive_of(given, "factor"))
    length_key = "original_max_position_embeddings"
    original = size_of({length_key: _agreed(config, length_key)}, length_key, default_original)
    if scaling == "llama3":
        return _llama3(given, theta, original)
    if scaling == "longrope":
        return _longrope(given, theta, original, context_length)
    return _yarn(given, theta, original, context_length)


def rope_context_length(rope: RopeConfig, context_length: int) -> int:
    """Return how many positions a model has that states `context_length`.

    YaRN's is the stretched original: Qwen's cards add it without a change of
    max_position_embeddings.
    """
    if rope.scaling == "yarn":
        return max(context_length, int(rope.factor * rope.original_length))
    return context_length


def _llama3(given: Config, theta: float, original: int) -> RopeConfig:
    low, high = positive_of(given, "low_freq_factor"), positive_of(given, "high_freq_factor")
    if high <= low:
        raise CheckpointError(f"high_freq_factor {high} is not above low_freq_factor {low}")
    return RopeConfig(
        theta=theta,
        scaling="llama3",
        factor=positive_of(given, "factor"),
        original_length=original,
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(given: Config, theta: float, original: int, context_length: int) -> RopeConfig:
    if theta <= 1:
        raise CheckpointError(f"rope_theta {theta} makes no sense with YaRN; it is above 1")
    factor = positive_of(given, "factor", context_length / original)
    return RopeConfig(
        theta=theta,
        scaling="yarn",
        factor=factor,
        original_length=original,
        attention_factor=positive_of(given, "attention_factor", _yarn_gain(given, factor)),
        beta_fast=positive_of(given, "beta_fast", 32.0),
        beta_slow=positive_of(given, "beta_slow", 1.0),
        truncate=switch_of(given, "truncate", default=True),
    )


def _longrope(given: Config, theta: float, original: int, context_length: int) -> RopeConfig:
    if original < 2:
        raise CheckpointError(f"original_max_position_embeddings {original} makes no sense")
    factor = positive_of(given, "factor", context_length / original)
    gain = sqrt(1 + log(factor) / log(original)) if factor > 1 else 1.0
    short, long = (_factors(given, key) for key in _FACTORS)
    return RopeConfig(
        theta=theta,
        scaling="longrope",
        factor=factor,
        original_length=original,
        attention_factor=positive_of(given, "attention_factor", gain),
        short_factors=short,
        long_factors=long,
    )


def _factors(given: Config, key: str) -> tuple[float, ...]:
    """Return what each pair's frequency is divided by."""
    listed = given.get(key)
    if not isinstance(listed, list):
        raise CheckpointError(f"{key} is {listed!r:.100}; expected a list of numbers")
    return tuple(positive_of({key: it}, key) for it in cast("list[object]", listed))


def _yarn_gain(given: Config, factor: float) -> float:
    """Return what YaRN multiplies cosine and sine by (Peng et al. 2023, eq. 22)."""

    def gain(scale: float) -> float:
        return 0.1 * scale * log(factor) + 1 if factor > 1 else 1.0

    if given.get("mscale") and given.get("mscale_all_dim"):
        return gain(positive_of(given, "mscale")) / gain(positive_of(given, "mscale_all_dim"))
    return gain(1.0)


def _scaling(config: Config, spellings: Mapping[str, str]) -> tuple[str, Config]:
    """Return the kind of scaling and the object that states it.

    spellings: what else an architecture calls one.
    """
    known = {**_SPELLINGS, **spellings}
    stated: list[tuple[str, Config]] = []
    for key in ("rope_parameters", "rope_scaling"):
        source = mapping_of(config, key)
        if any(isinstance(value, dict) for value in source.values()):
            raise UnsupportedModelError(f"{key} by layer type is not supported: {source!r:.200}")
        named = [source[name] for name in ("rope_type", "type") if source.get(name) is not None]
        kinds = [known.get(str(kind), str(kind)) for kind in named]
        if not kinds and not set(source) <= _UNSCALED:
            kinds = ["without a type"]
        unknown = [kind for kind in kinds if kind not in _SCALINGS]
        if unknown or len(set(kinds)) > 1:
            said = " and ".join(map(repr, unknown or kinds))
            raise UnsupportedModelError(
                f"rope scaling {said} ({key}) is not supported; supported: {', '.join(_SCALINGS)}"
            )
        _refuse_unknown_keys(source, key)
        if kinds:
            stated.append((kinds[0], source))
    if len(stated) == 2:
        _require_agreement(*stated)
    return stated[0] if stated else ("none", {})


def _refuse_unknown_keys(source: Config, key: str) -> None:
    unknown = sorted(set(source) - _UNDERSTOOD)
    if unknown:
        raise UnsupportedModelError(
            f"{key} holds {', '.join(unknown)!r:.200}, which this version does not know"
        )


def _require_agreement(five: tuple[str, Config], four: tuple[str, Config]) -> None:
    if five[0] != four[0]:
        raise CheckpointError(
            f"rope_parameters states the scaling {five[0]!r}, rope_scaling states {four[0]!r}"
        )
    for key in (*_SHARED, *_FACTORS):
        _agreed({"rope_scaling": four[1], "rope_parameters": five[1]}, key)


def _agreed(config: Config, key: str) -> object:
    """Return what is stated under `key` in config.json itself or in either object of it."""
    sources = {name: mapping_of(config, name) for name in ("rope_scaling", "rope_parameters")}
    places = {"config.json": config, **sources}
    stated = [(place, it[key]) for place, it in places.items() if it.get(key) is not None]
    for place, value in stated[1:]:
        if value != stated[0][1]:
            raise CheckpointError(f"{key} is {stated[0][1]!r}, but {value!r} in {place}")
    return stated[0][1] if stated else None
