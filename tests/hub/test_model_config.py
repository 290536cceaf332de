from __future__ import annotations

import pytest

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.graph.rope import inverse_frequencies
from dashinfer_lab.hub import model_config
from dashinfer_lab.hub.families import FAMILIES
from dashinfer_lab.models import supported_models

SIZES: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1003,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
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
        ({"architectures": [], "model_type": "gpt2"}, "gpt2"),
        ({"architectures": ["Qwen2ForCausalLM"]}, "model_type 'llama'"),
        ({"architectures": None, "model_type": "Qwen_v99"}, "Qwen_v99"),
        ({"architectures": None, "model_type": None}, "None"),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "Other"),
        ({"rope_scaling": {"type": "su"}}, "none, linear, dynamic, llama3, yarn, longrope"),
        ({"rope_scaling": {"factor": 8}}, "without a type"),
        ({"rope_scaling": {"mrope_section": [16, 24, 24]}}, "without a type"),
        ({"rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}}, "mrope_section"),
        ({"rope_scaling": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "default", "type": "yarn"}}, "'none' and 'yarn'"),
        ({"rope_parameters": {"rope_type": "proportional"}}, "proportional"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "ramp": 3}}, "ramp"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "by layer type"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config .*fp8"),
        ({"quantization_config": {"load_in_4bit": True}}, "load_in_4bit"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"quantization": {"group_size": 64, "bits": 4}}, "quantization .*'bits': 4"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"pretraining_tp": 2}, "pretraining_tp"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping 30.0"),
        ({"num_local_experts": 8}, "num_local_experts 8"),
        ({"embedding_multiplier": 12.0}, "embedding_multiplier"),
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
        ({"rope_scaling": {"type": "linear"}}, "has no factor"),
        ({"rope_scaling": {"type": "dynamic", "factor": 0}}, "factor is 0"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": None}}, "has no high_freq_factor"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1}}, "1.0 is not above low_freq_factor"),
        ({"rope_scaling": {"type": "yarn", "factor": -2}}, "factor is -2"),
        (
            {"rope_theta": 1e4, "rope_scaling": {"rope_theta": 5e5}},
            "rope_theta is 10000.0, but 500000.0 in rope_scaling",
        ),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "short_factor is None"),
        ({"rope_scaling": LONGROPE | {"long_factor": [1.0] * 7}}, "long_factor has 7 .* the 8"),
        ({"rope_scaling": LONGROPE | {"short_factor": [0.0] * 8}}, "short_factor is 0.0"),
        ({"rope_scaling": LONGROPE | {"short_factor": [[1]] * 8}}, r"short_factor is \[1\]"),
        (
            {
                "original_max_position_embeddings": 64,
                "rope_scaling": LONGROPE | {"original_max_position_embeddings": 32},
            },
            "original_max_position_embeddings is 64, but 32",
        ),
        ({"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2}}, "rope_theta 1.0"),
        (
            {"rope_scaling": LLAMA3, "rope_parameters": LLAMA3 | {"factor": 32}},
            "factor is 8, but 32",
        ),
        (
            {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "default"}},
            "states the scaling 'none', rope_scaling states 'llama3'",
        ),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, "10000.0, but 500000.0"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, "dtype and torch_dtype differ"),
    ],
    ids=str,
)
def test_contradictions_and_nonsense_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        model_config(SIZES | change)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["type", "rope_type"])
def test_a_scaling_is_read_in_every_spelling(key: str, kind: str) -> None:
    scaling = {**LLAMA3, kind: LLAMA3["rope_type"]}
    config = model_config(SIZES | {key: scaling, "max_position_embeddings": 131072})

    assert config.context_length == 131072
    assert config.rope == RopeConfig(
        scaling="llama3", factor=8.0, original_length=8192, low_freq_factor=1.0,
        high_freq_factor=4.0,
    )  # fmt: skip


def test_yarn_stretches_the_context_and_fills_in_what_its_paper_says() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = model_config(SIZES | {"rope_scaling": scaling, "max_position_embeddings": 32768})

    assert config.context_length == 131072
    # 0.1 ln 4 + 1 (Peng et al. 2023, eq. 22)
    assert config.rope.attention_factor == pytest.approx(1.1386294, abs=1e-6)
    assert (config.rope.beta_fast, config.rope.beta_slow, config.rope.truncate) == (32, 1, True)


def test_a_base_in_rope_scaling_is_read() -> None:
    """As transformers 5 reads it: the object takes the place of rope_parameters."""
    for scaling in ({"rope_theta": 5e5}, {"type": "linear", "factor": 2.0, "rope_theta": 5e5}):
        assert model_config(SIZES | {"rope_scaling": scaling}).rope.theta == 5e5


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_phi_3_calls_longrope_by_three_names(kind: str) -> None:
    phi3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
    length = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
    config = model_config(SIZES | phi3 | length | {"rope_scaling": {**LONGROPE, "type": kind}})
    rope = config.rope

    assert (rope.scaling, rope.original_length, rope.factor) == ("longrope", 4096, 32.0)
    assert rope.attention_factor == pytest.approx(1.1902380714)  # sqrt(1 + ln 32 / ln 4096)
    assert (config.first_rotary_row(4096), config.first_rotary_row(4097)) == (131072, 0)


def test_longrope_takes_the_factors_that_are_stated() -> None:
    stated = {"factor": 8.0, "attention_factor": 1.5, "original_max_position_embeddings": 4096}
    config = model_config(SIZES | {"rope_scaling": LONGROPE | stated})

    assert (config.rope.factor, config.rope.attention_factor) == (8.0, 1.5)
    assert config.num_short_rows == 0  # a context of 2048 needs no long ones


def test_dynamic_scaling_changes_nothing_within_the_context() -> None:
    scaling = {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 128}
    scaled, plain = model_config(SIZES | scaling), model_config(SIZES)

    assert scaled.context_length == 128  # what is longer is refused, and never wrong
    for left, right in zip(
        inverse_frequencies(scaled.rope, 16), inverse_frequencies(plain.rope, 16), strict=True
    ):
        assert left == right


@pytest.mark.parametrize(
    ("alias", "model_type"),
    [
        ("LLaMA_v2", "llama"),
        ("LLaMA_v3", "llama"),
        ("Qwen_v15", "qwen2"),
        ("Qwen_v20", "qwen2"),
        ("Qwen_v30", "qwen3"),
    ],
)  # fmt: skip
def test_names_that_dashinfer_has_are_understood(alias: str, model_type: str) -> None:
    assert model_config({**SIZES, "architectures": None, "model_type": alias}).model_type == (
        model_type
    )


def test_every_family_has_a_graph_and_every_graph_a_family() -> None:
    assert sorted(family.model_type for family in FAMILIES) == list(supported_models())


QWEN2 = {**SIZES, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}


@pytest.mark.parametrize(
    "window",
    [
        {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 28},
        {"sliding_window": 4096},
        {"use_sliding_window": True, "sliding_window": None},
        {"use_sliding_window": True, "sliding_window": 40000},
        {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 3},
        {"use_sliding_window": True, "sliding_window": 4096, "layer_types": ["full_attention"] * 3},
    ],
    ids=str,
)
def test_a_window_that_hides_no_key_is_full_attention(window: dict[str, object]) -> None:
    assert model_config(QWEN2 | window).windows == ()


@pytest.mark.parametrize(
    "window",
    [
        {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 2},
        {"use_sliding_window": True, "max_window_layers": 2},
        {
            "use_sliding_window": True, "sliding_window": 4096,
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
        },
    ],
    ids=str,
)  # fmt: skip
def test_layers_that_have_a_window_are_named_or_follow_the_others(
    window: dict[str, object],
) -> None:
    config = model_config(QWEN2 | window)

    assert config.windows == (None, None, 4096)
    assert [config.window(layer) for layer in range(3)] == [None, None, 4096]
    assert model_config(QWEN2 | window | {"max_position_embeddings": 4096}).windows == ()


@pytest.mark.parametrize("first", [-1, True, "all"])
def test_a_window_that_makes_no_sense_is_refused(first: object) -> None:
    window = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": first}

    with pytest.raises(CheckpointError, match="max_window_layers"):
        model_config(QWEN2 | window)


@pytest.mark.parametrize(
    ("architecture", "model_type"), [("MistralForCausalLM", "mistral"), ("Phi3ForCausalLM", "phi3")]
)
def test_a_window_without_a_switch_always_holds(architecture: str, model_type: str) -> None:
    config = {**SIZES, "architectures": [architecture], "model_type": model_type}
    config |= {"max_position_embeddings": 8192, "num_key_value_heads": 2}

    assert model_config(config | {"sliding_window": None}).windows == ()
    assert model_config(config | {"sliding_window": 8192}).windows == ()
    assert model_config(config | {"sliding_window": 4096}).windows == (4096,) * 3
    mixed = {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}
    with pytest.raises(UnsupportedModelError, match="layer_types"):
        model_config(config | {"sliding_window": 4096} | mixed)


def test_a_list_of_layers_of_another_length_is_refused() -> None:
    window = {"use_sliding_window": True, "sliding_window": 9, "layer_types": ["full_attention"]}

    with pytest.raises(CheckpointError, match="names 1 layers of 3"):
        model_config(QWEN2 | window)
