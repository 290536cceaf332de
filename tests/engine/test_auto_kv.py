"""Which format of keys and values "auto" takes, and that it says so in both languages."""

from __future__ import annotations

import pytest

from dashinfer_lab.engine.auto_kv import (
    KV_CACHE_DTYPES,
    choose_kv_format,
    kv_page_bytes,
    usual_kv_format,
)
from dashinfer_lab.engine.loading import LoadOptions
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.quantize import WeightFormat
from tests.model.tiny_artifact import tiny_llama

CONFIG = tiny_llama()  # two layers, two kv heads of 16
TOKENS = 1000  # 32 pages
SIZES = {each: 32 * kv_page_bytes(CONFIG, each) for each in KV_CACHE_DTYPES[1:]}


def test_a_page_holds_32_tokens_and_int8_keys_of_12_bits_and_a_scale_for_each_head() -> None:
    elements = 2 * 2 * 2 * 16 * 32  # layers, heads, keys and values
    assert kv_page_bytes(CONFIG, "fp32") == 4 * elements
    assert kv_page_bytes(CONFIG, "bf16") == 2 * elements
    keys = elements // 2
    assert kv_page_bytes(CONFIG, "int8") == 12 * keys // 8 + keys + 4 * elements // 16


@pytest.mark.parametrize(
    ("room", "kept", "word"),
    [
        (SIZES["fp32"], "fp32", "as computed"),
        (SIZES["fp32"] - 1, "bf16", "would take"),
        (SIZES["bf16"] - 1, "int8", "would take"),
        (SIZES["int8"] - 1, "int8", "smallest"),
    ],
)
@pytest.mark.parametrize("weights", ["f32", "bf16"])
def test_the_most_exact_format_that_fits_is_taken(
    weights: WeightFormat, room: int, kept: str, word: str
) -> None:
    choice = choose_kv_format("auto", CONFIG, weights, TOKENS, room)

    assert choice.kv_format == kept
    assert choice.reason().startswith(f"{kept}: ")
    assert word in choice.reason()
    assert choice.reason("zh").startswith(f"{kept}：")
    usual = f"fp32: {SIZES['fp32'] / 1e6:.0f} MB for {TOKENS} tokens"
    assert choice.brief() == (usual if kept == "fp32" else choice.reason())


def test_memory_that_is_given_holds_as_many_tokens_as_fit() -> None:
    choice = choose_kv_format("auto", CONFIG, "f32", TOKENS, SIZES["fp32"] // 2, is_given=True)

    assert choice.kv_format == "fp32"
    assert "hold 512 tokens" in choice.reason()


@pytest.mark.parametrize("weights", ["u8", "u4"])
def test_beside_weights_of_integers_keys_and_values_are_int8(weights: WeightFormat) -> None:
    usual, short = (
        choose_kv_format("auto", CONFIG, weights, TOKENS, SIZES["int8"] - lack) for lack in (0, 1)
    )
    given = choose_kv_format("auto", CONFIG, weights, TOKENS, SIZES["int8"] // 2, is_given=True)

    assert usual_kv_format(CONFIG, weights) == "int8"
    assert usual.kv_format == short.kv_format == given.kv_format == "int8"
    assert "weights are rounded more" in usual.reason()
    assert usual.brief() == f"int8: {SIZES['int8'] / 1e6:.0f} MB for {TOKENS} tokens"
    assert "fewer are kept" in short.reason()
    assert "hold 512 tokens" in given.reason()


def test_keys_that_cannot_be_int8_are_kept_as_beside_other_weights() -> None:
    staged = tiny_llama(context_length=512, ntk_length=256)
    choice = choose_kv_format("auto", staged, "u8", TOKENS, SIZES["fp32"])

    assert choice.kv_format == usual_kv_format(staged, "u8") == "fp32"
    assert "as computed" in choice.reason()


@pytest.mark.parametrize("asked", ["fp32", "bf16", "int8"])
def test_what_is_asked_for_is_taken_whatever_the_memory(asked: str) -> None:
    choice = choose_kv_format(asked, CONFIG, "f32", TOKENS, 1)

    assert choice.kv_format == asked
    assert "asked" in choice.reason()


@pytest.mark.parametrize("given", ["fp8", "", None, ["int8"]])
def test_other_formats_are_refused_by_name(given: object) -> None:
    with pytest.raises(ConfigError, match="it is one of auto, fp32, bf16, int8"):
        LoadOptions(kv_cache_dtype=given)  # type: ignore[arg-type]  # what a caller may give
