"""Schemes: spelling, and which weight gets which format."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashinfer_lab.errors import ConfigError
from dashinfer_lab.quantize import Scheme, WeightFormat, WeightRole


@pytest.mark.parametrize(
    ("text", "weights", "group"),
    [
        ("fp32", "f32", 64),
        ("bf16", "bf16", 64),
        ("a16w8", "u8", 64),
        ("a16w8:32", "u8", 32),
        ("a16w8:512", "u8", 512),
        ("a16w8:row", "u8", "row"),
        ("a16w4", "u4", 32),
        ("a16w4:64", "u4", 64),
        ("a16w4:row", "u4", "row"),
        ("a8w8", "u8", 64),
        ("a8w4:128", "u4", 128),
    ],
)
def test_the_documented_spellings_are_read(text: str, weights: str, group: int | str) -> None:
    scheme = Scheme.parse(text)

    assert (scheme.weights, scheme.group_size) == (weights, group)
    assert Scheme.parse(str(scheme)) == scheme


def test_activations_are_coarse_only_where_asked() -> None:
    bits = {name: Scheme.parse(name).activation_bits for name in ("a16w8", "a16w4", "a8w8", "a8w4")}

    assert bits == {"a16w8": 16, "a16w4": 16, "a8w8": 8, "a8w4": 8}


@pytest.mark.parametrize(
    "text", ["", "int8", "fp32:64", "a16w8:", "a16w8:48", "a16w8:col", "a16w4:", "auto"]
)
def test_another_spelling_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is unknown; it is one of fp32, bf16, a16w8"):
        Scheme.parse(text)


@pytest.mark.parametrize(
    ("scheme", "role", "expected"),
    [
        ("fp32", "linear", "f32"),
        ("fp32", "embedding", "f32"),
        ("bf16", "linear", "bf16"),
        ("bf16", "tied", "bf16"),
        ("bf16", "norm", "f32"),
        ("a16w8", "linear", "u8"),
        ("a16w8", "embedding", "bf16"),
        ("a16w8", "head", "u8"),
        ("a16w8", "tied", "u8"),
        ("a16w8", "bias", "f32"),
        ("a16w8", "table", "f32"),
        ("a16w4", "linear", "u4"),
        ("a16w4", "embedding", "bf16"),
        ("a16w4", "head", "u8"),
        ("a16w4", "tied", "u8"),
        ("a16w4", "norm", "f32"),
    ],
)
def test_each_role_gets_the_format_of_the_scheme(
    scheme: str, role: WeightRole, expected: WeightFormat
) -> None:
    assert Scheme.parse(scheme).format_of("model.any.weight", role) == expected


def test_the_head_keeps_groups_of_64_whatever_the_linears_use() -> None:
    scheme = Scheme.parse("a16w8:row")

    assert scheme.group_size_of("linear") == "row"
    assert scheme.group_size_of("head") == scheme.group_size_of("tied") == 64


def test_exempt_patterns_keep_their_weights_in_bfloat16() -> None:
    scheme = replace(Scheme.parse("a16w8"), exempt=("*.down_proj.weight",))

    assert scheme.format_of("model.layers.0.mlp.down_proj.weight", "linear") == "bf16"
    assert scheme.format_of("model.layers.0.mlp.up_proj.weight", "linear") == "u8"
    assert str(scheme) == "a16w8:64-*.down_proj.weight"
    assert Scheme.read(str(scheme)) == scheme


@pytest.mark.parametrize("text", ["a16w8-64", "a16w4-g128", "a16w8-*.weight", "a16w8-"])
def test_exemptions_are_not_asked_for_by_spelling(text: str) -> None:
    with pytest.raises(ConfigError, match="is unknown"):
        Scheme.parse(text)


@pytest.mark.parametrize("text", ["a16w8-", "a16w8--", "a16w8:63-*", "bf16-*.weight", "fp32-*"])
def test_exemptions_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Scheme.read(text)


def test_a_pattern_that_would_read_back_as_two_is_refused() -> None:
    with pytest.raises(ConfigError, match='has a "\\?" where a name has a "-"'):
        replace(Scheme.parse("a16w8"), exempt=("my-layer.weight",))
