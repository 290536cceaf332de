"""Keys that are kept as int8 lose their bias, where attention can add what it would."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.lower import PlanLimits, lower, lowered_ops
from dashinfer_lab.lower.ops import Op
from dashinfer_lab.lower.passes import drop_key_bias
from tests.model.tiny_artifact import tiny_artifact, tiny_llama


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> list[Op]:
    directory = tmp_path_factory.mktemp("biased") / "tiny"
    return lowered_ops(tiny_artifact(directory, "fp32", tiny_llama(model_type="qwen2")))


def of_kind(ops: list[Op], kind: str) -> list[Op]:
    return [op for op in ops if op.kind == kind]


def test_the_linear_keeps_the_other_biases_and_attention_knows_the_keys(ops: list[Op]) -> None:
    fused = of_kind(drop_key_bias(ops), "linear")[0]
    attend = of_kind(drop_key_bias(ops), "paged_attention")[0]

    layer = "model.layers.0.self_attn"
    assert fused["biases"] == (f"{layer}.q_proj.bias", None, f"{layer}.v_proj.bias")
    assert attend["key_bias"] == f"{layer}.k_proj.bias"
    assert (attend["cos"], attend["sin"]) == ("rope.cos", "rope.sin")


def test_keys_that_are_normalised_or_do_not_turn_keep_their_bias(ops: list[Op]) -> None:
    normed = [
        op.with_attributes(q_weight="q", k_weight="k") if op.kind == "rope_append" else op
        for op in ops
    ]

    assert drop_key_bias(normed) == normed


def test_a_base_that_follows_the_prompt_is_refused_with_the_way_out(ops: list[Op]) -> None:
    staged = [op.with_attributes(staged=True) if op.kind == "rope_append" else op for op in ops]

    with pytest.raises(UnsupportedModelError, match="kv_cache_dtype='bf16'"):
        drop_key_bias(staged)


@pytest.mark.parametrize("kv_format", ["fp32", "bf16", "int8"])
def test_only_int8_asks_attention_for_the_bias(tmp_path: Path, kv_format: str) -> None:
    artifact = tiny_artifact(tmp_path / "tiny", "fp32", tiny_llama(model_type="qwen2"))
    limits = PlanLimits(40, 8, 2, 6, kv_format)  # type: ignore[arg-type]  # one of its names

    attention = [op for op in lower(artifact, limits).ops if op.kernel == "attention"]

    assert {op.constants["key_biased"] for op in attention} == {kv_format == "int8"}
    assert {op.constants["kv_format"] for op in attention} == {kv_format}
