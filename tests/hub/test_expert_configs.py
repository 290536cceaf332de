"""Mixtures of experts in config.json: both spellings, defaults of their classes, refusals."""

from __future__ import annotations

import pytest

from dashinfer_lab.config import ExpertConfig
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub import model_config

SIZES: dict[str, object] = {
    "vocab_size": 1003,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
}
MIXTRAL = {**SIZES, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
QWEN2 = {**SIZES, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe"}
QWEN3 = {**SIZES, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}


@pytest.mark.parametrize(
    ("config", "experts"),
    [
        (MIXTRAL, ExpertConfig(8, 2, 200)),
        (QWEN2, ExpertConfig(60, 4, 1408, shared_size=5632, renormalise=False)),
        (QWEN3, ExpertConfig(128, 8, 768, renormalise=False)),
    ],
    ids=["mixtral", "qwen2_moe", "qwen3_moe"],
)
def test_a_key_that_is_absent_has_the_default_of_its_class(
    config: dict[str, object], experts: ExpertConfig
) -> None:
    assert model_config(config).experts == experts


def test_the_rest_of_a_mixtral_has_the_defaults_of_its_class() -> None:
    config = model_config({**MIXTRAL, "num_key_value_heads": None})

    assert (config.rope.theta, config.num_kv_heads, config.norm_eps) == (1e6, 8, 1e-5)


def test_dashinfers_name_is_known() -> None:
    config = model_config({**QWEN2, "model_type": "Qwen_v20_MOE"})

    assert config.model_type == "qwen2_moe"
    assert config.attention_bias


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_the_experts_are_counted_under_either_name(key: str) -> None:
    experts = model_config({**QWEN3, key: 16, "norm_topk_prob": True}).experts

    assert experts == ExpertConfig(16, 8, 768)


def test_counts_that_differ_are_refused() -> None:
    with pytest.raises(CheckpointError, match="num_local_experts differ"):
        model_config({**QWEN3, "num_experts": 16, "num_local_experts": 8})


@pytest.mark.parametrize(
    ("keys", "dense"),
    [
        ({}, ()),
        ({"mlp_only_layers": [0, 5]}, (0, 5)),
        ({"decoder_sparse_step": 2}, (0, 2, 4)),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, (0, 2, 3, 4)),
    ],
    ids=["all have experts", "listed", "every second", "both"],
)
def test_layers_without_experts_are_known(keys: dict[str, object], dense: tuple[int, ...]) -> None:
    experts = model_config({**QWEN2, **keys}).experts

    assert experts is not None
    assert experts.dense_layers == dense


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"num_experts": 0}, "num_experts"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "num_experts_per_tok 5 is above the 4"),
        ({"moe_intermediate_size": -1}, "moe_intermediate_size"),
        ({"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob"),
        ({"mlp_only_layers": ["0"]}, "mlp_only_layers"),
        ({"mlp_only_layers": 3}, "mlp_only_layers"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_sizes_that_make_no_sense_are_refused(keys: dict[str, object], name: str) -> None:
    with pytest.raises(CheckpointError, match=name):
        model_config({**QWEN2, **keys})


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_experts_of_an_architecture_without_any_are_refused(key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=key):
        model_config({**SIZES, "architectures": ["LlamaForCausalLM"], key: 8})


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        ({**MIXTRAL, "sliding_window": 32}, (32,) * 6),
        ({**MIXTRAL, "sliding_window": None}, ()),
        ({**QWEN3, "sliding_window": 32}, ()),
        ({**QWEN3, "sliding_window": 32, "use_sliding_window": True}, (32,) * 6),
        (
            {**QWEN2, "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3},
            (32, None, 32, None, None, None),
        ),
    ],
    ids=["mixtral", "mixtral without", "switched off", "all layers", "even layers"],
)
def test_windows_are_those_of_the_class(
    config: dict[str, object], windows: tuple[int | None, ...]
) -> None:
    assert model_config(config).windows == windows
