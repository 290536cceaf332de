from __future__ import annotations

import pytest

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub import model_config

SIZES: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1003,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}
FOUR = {"rope_theta": 5e5, "rope_scaling": None, "torch_dtype": "bfloat16"}
FIVE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "dtype": "bfloat16"}


@pytest.mark.parametrize("spelling", [FOUR, FIVE, FOUR | FIVE], ids=["four", "five", "both"])
def test_both_spellings_of_rope_are_read(spelling: dict[str, object]) -> None:
    assert model_config(SIZES | spelling).rope == RopeConfig(theta=5e5)


def test_defaults_are_those_of_transformers() -> None:
    config = model_config(SIZES)

    assert (config.num_kv_heads, config.head_dim) == (6, 16)
    assert (config.norm_eps, config.context_length) == (1e-6, 2048)
    assert config.rope == RopeConfig(theta=10000.0)
    switches = (config.tie_word_embeddings, config.attention_bias, config.mlp_bias)
    assert switches == (False, False, False)


def test_what_is_stated_is_taken() -> None:
    stated = {
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 77,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "mlp_bias": True,
        "hidden_act": "silu",
        "pretraining_tp": 1,
    }
    config = model_config(SIZES | stated)

    assert (config.num_kv_heads, config.head_dim, config.context_length) == (2, 32, 77)
    assert config.norm_eps == 1e-5
    assert config.tie_word_embeddings
    assert config.attention_bias
    assert config.mlp_bias


def test_the_model_type_alone_is_enough() -> None:
    assert model_config({**SIZES, "architectures": None}).model_type == "llama"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "mistral"}, "mistral"),
        ({"architectures": [], "model_type": "qwen2"}, "qwen2"),
        ({"architectures": None, "model_type": None}, "None"),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "Other"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "llama3"),
        ({"rope_scaling": {"factor": 8}}, "without a type"),
        ({"rope_scaling": {"rope_type": "default", "type": "yarn"}}, "default|yarn"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "by layer type"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"head_dim": 15}, "head_dim 15"),
        ({"max_position_embeddings": 1 << 24}, "lower it to 8388608 or less"),
        ({"architectures": [["LlamaForCausalLM"]]}, "is not supported"),
        ({"architectures": [{}]}, "is not supported"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_by_name(change: dict[str, object], named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        model_config(SIZES | change)


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, 0, -1, 96.0, "96", True, [96], 1 << 40], ids=repr)
def test_a_size_that_makes_no_sense_is_named(key: str, value: object) -> None:
    with pytest.raises(CheckpointError, match=key):
        model_config(SIZES | {key: value})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_key_value_heads": 4}, "6 is not divisible by num_key_value_heads 4"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"num_attention_heads": 7}, "96 is not divisible by num_attention_heads 7"),
        ({"head_dim": -16}, "head_dim"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"num_hidden_layers": 4097}, "integer from 1 to 4096"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rope_theta": float("inf")}, "rope_theta"),
        ({"rope_theta": True}, "rope_theta"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, "10000.0, but 500000.0"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, "dtype and torch_dtype differ"),
    ],
    ids=str,
)
def test_contradictions_and_nonsense_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        model_config(SIZES | change)
