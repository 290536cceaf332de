"""config.json of single families: their own keys and defaults, and what is refused of them."""

from __future__ import annotations

from math import ceil, log2

import pytest

from dashinfer_lab.config import RopeConfig, ntk_stage
from dashinfer_lab.errors import CheckpointError, UnsupportedModelError
from dashinfer_lab.hub import model_config

SIZES: dict[str, object] = {
    "vocab_size": 1003,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
}
GLM = {**SIZES, "architectures": ["GlmForCausalLM"], "model_type": "glm"}


def test_a_glm_has_the_defaults_of_its_class() -> None:
    config = model_config(GLM)

    assert (config.num_kv_heads, config.head_dim, config.context_length) == (2, 128, 131072)
    assert config.norm_eps == 1.5625e-7
    assert config.attention_bias
    assert config.rope == RopeConfig(partial_factor=0.5, interleaved=True)


@pytest.mark.parametrize(
    "spelling",
    [
        {"partial_rotary_factor": 0.25, "rope_theta": 5e5},
        {"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 0.25}},
    ],
    ids=["four", "five"],
)
def test_both_spellings_of_a_partial_rotation_are_read(spelling: dict[str, object]) -> None:
    rope = model_config(GLM | spelling).rope

    assert rope == RopeConfig(theta=5e5, partial_factor=0.25, interleaved=True)


@pytest.mark.parametrize("factor", [0, -0.5, 1.5, "half", True])
def test_a_share_that_makes_no_sense_is_refused(factor: object) -> None:
    with pytest.raises(CheckpointError, match="partial_rotary_factor"):
        model_config(GLM | {"partial_rotary_factor": factor})


@pytest.mark.parametrize("factor", [0.01, 0.4])
def test_a_share_of_no_whole_pairs_is_refused(factor: float) -> None:
    with pytest.raises(UnsupportedModelError, match="no whole number of pairs"):
        model_config(GLM | {"partial_rotary_factor": factor})


CHATGLM: dict[str, object] = {
    "architectures": ["ChatGLMModel"],
    "model_type": "chatglm",
    "num_layers": 28,
    "padded_vocab_size": 65024,
    "vocab_size": 65000,
    "hidden_size": 4096,
    "ffn_hidden_size": 13696,
    "kv_channels": 128,
    "num_attention_heads": 32,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "seq_length": 8192,
    "add_qkv_bias": True,
    "rmsnorm": True,
    "original_rope": True,
}


@pytest.mark.parametrize("architecture", ["ChatGLMModel", "ChatGLMForConditionalGeneration"])
def test_the_keys_of_chatglm_are_read(architecture: str) -> None:
    config = model_config(CHATGLM | {"architectures": [architecture]})

    assert (config.num_layers, config.vocab_size, config.intermediate_size) == (28, 65024, 13696)
    assert (config.num_kv_heads, config.head_dim, config.context_length) == (2, 128, 8192)
    assert config.attention_bias
    assert config.norm_eps == 1e-5
    assert config.rope == RopeConfig(partial_factor=0.5, interleaved=True)


def test_a_chatglm_without_groups_has_as_many_keys_as_queries() -> None:
    assert model_config(CHATGLM | {"multi_query_attention": False}).num_kv_heads == 32


@pytest.mark.parametrize(
    ("change", "theta", "factor"),
    [
        ({"rope_ratio": 50}, 500000.0, 1.0),
        ({"rope_ratio": 500}, 5000000.0, 1.0),
        ({"model_type": "ChatGLM_v3", "architectures": None, "rope_ratio": 2}, 20000.0, 1.0),
        ({"model_type": "ChatGLM_v4", "rope_ratio": 1}, 10000.0, 1.0),
        ({"model_type": "ChatGLM_v2", "rope_ratio": 16}, 10000.0, 16.0),
    ],
    ids=str,
)
def test_the_ratio_stretches_the_base_or_in_chatglm_2_positions(
    change: dict[str, object], theta: float, factor: float
) -> None:
    rope = model_config(CHATGLM | change).rope

    assert (rope.theta, rope.factor) == (theta, factor)
    assert rope.scaling == ("linear" if factor != 1 else "none")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rope_ratio": 16}, 'model_type to "ChatGLM_v2" or "ChatGLM_v3"'),
        ({"position_encoding_2d": True}, "position_encoding_2d"),
        ({"rmsnorm": False}, "rmsnorm"),
        ({"post_layer_norm": False}, "post_layer_norm"),
        ({"add_bias_linear": True}, "add_bias_linear"),
        ({"original_rope": False}, "original_rope"),
        ({"apply_residual_connection_post_layernorm": True}, "post_layernorm"),
        ({"interleaved_qkv": True}, "interleaved_qkv"),
        ({"pre_seq_len": 128}, "pre_seq_len 128"),
        ({"quantization_bit": 4}, "quantization_bit 4"),
        ({"rope_theta": 5e5}, "rope_theta"),
    ],
    ids=str,
)
def test_what_cannot_be_run_of_chatglm_is_refused_by_name(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        model_config(CHATGLM | change)


@pytest.mark.parametrize("key", ["num_layers", "padded_vocab_size", "kv_channels", "seq_length"])
def test_a_missing_size_of_chatglm_has_the_files_own_name(key: str) -> None:
    with pytest.raises(CheckpointError, match=f"no {key}"):
        model_config(CHATGLM | {key: None})


GEMMA2 = {**SIZES, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"}


def test_a_gemma_2_has_the_defaults_of_its_class() -> None:
    config = model_config(GEMMA2 | {"num_attention_heads": 8})

    assert (config.num_kv_heads, config.head_dim, config.context_length) == (4, 256, 8192)
    assert config.tie_word_embeddings
    assert config.attention_scale == 0.0625
    assert (config.attention_softcap, config.logit_softcap) == (50, 30)
    assert config.windows == (4096, None, 4096)


def test_a_bound_that_is_null_is_none() -> None:
    bounds = {"attn_logit_softcapping": None, "final_logit_softcapping": 12}
    config = model_config(GEMMA2 | {"num_key_value_heads": 2} | bounds)

    assert (config.attention_softcap, config.logit_softcap) == (None, 12)


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"hidden_activation": "gelu"}, UnsupportedModelError, "hidden_activation 'gelu'"),
        ({"hidden_act": "silu"}, UnsupportedModelError, "hidden_act 'silu'"),
        ({"use_bidirectional_attention": True}, UnsupportedModelError, "bidirectional"),
        ({"query_pre_attn_scalar": 0}, CheckpointError, "query_pre_attn_scalar"),
        ({"attn_logit_softcapping": -1}, CheckpointError, "attn_logit_softcapping"),
        ({"final_logit_softcapping": "30"}, CheckpointError, "final_logit_softcapping"),
    ],
    ids=str,
)
def test_what_cannot_be_run_of_gemma_is_refused_by_name(
    change: dict[str, object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        model_config(GEMMA2 | {"num_key_value_heads": 2} | change)


GEMMA3 = {
    **SIZES,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_attention_heads": 8,
}
FOUR = {
    "rope_theta": 5e5,
    "rope_local_base_freq": 300,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
FIVE = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300},
    }
}


def test_a_gemma_3_has_the_defaults_of_its_class() -> None:
    config = model_config(GEMMA3 | {"num_hidden_layers": 7})

    assert config.rope == RopeConfig(theta=1e6)
    assert config.local_rope == RopeConfig(theta=1e4)
    assert config.local_layers == (True, True, True, True, True, False, True)
    assert config.windows == (4096, 4096, 4096, 4096, 4096, None, 4096)
    assert (config.attention_softcap, config.logit_softcap) == (None, None)


@pytest.mark.parametrize("spelling", [FOUR, FIVE], ids=["four", "five"])
def test_both_spellings_of_rope_by_kind_of_layer_are_read(spelling: dict[str, object]) -> None:
    config = model_config(GEMMA3 | spelling)

    assert config.rope == RopeConfig(theta=5e5, scaling="linear", factor=8.0)
    assert config.local_rope == RopeConfig(theta=300)


def test_layers_keep_their_own_base_where_the_window_hides_nothing() -> None:
    config = model_config(GEMMA3 | {"sliding_window": 1 << 20})

    assert config.windows == ()
    assert [config.rope_of(layer).theta for layer in range(3)] == [1e4] * 3


def test_one_rope_for_all_kinds_of_layers_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="rope_parameters holds 'rope_theta"):
        model_config(GEMMA3 | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}})


BAICHUAN = {
    **SIZES,
    "architectures": ["BaichuanForCausalLM"],
    "model_type": "baichuan",
    "model_max_length": 2048,
}
OF_7B = {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
OF_13B = {"hidden_size": 5120, "num_attention_heads": 40}


@pytest.mark.parametrize(
    ("change", "alibi", "unit_head", "length"),
    [
        ({**OF_7B, "vocab_size": 64000, "architectures": ["BaiChuanForCausalLM"]}, 0, 0, 4096),
        ({**OF_13B, "vocab_size": 64000}, 1, 0, 2048),
        ({**OF_7B, "vocab_size": 125696, "z_loss_weight": 0}, 0, 1, 4096),
        ({**OF_13B, "vocab_size": 125696}, 1, 1, 2048),
        ({**OF_13B, "vocab_size": 125700, "z_loss_weight": 0}, 1, 1, 2048),
        ({**OF_13B, "model_type": "Baichuan"}, 1, 0, 2048),
        ({**OF_13B, "model_type": "Baichuan_v2"}, 1, 1, 2048),
    ],
    ids=["7B", "13B", "2, 7B", "2, 13B", "2 with more tokens", "named", "named 2"],
)
def test_the_four_baichuans_are_told_apart(
    change: dict[str, object], alibi: int, unit_head: int, length: int
) -> None:
    config = model_config(BAICHUAN | change)

    assert (config.alibi, config.unit_head) == (alibi, unit_head)
    assert config.context_length == length
    assert config.num_kv_heads == config.num_heads


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab_size": 70000}, 'model_type in config.json to "Baichuan" or "Baichuan_v2"'),
        ({**OF_13B, "max_position_embeddings": 4096}, "neither Baichuan 7B"),
        ({**OF_7B, "max_position_embeddings": None}, "neither Baichuan 7B"),
        ({"z_loss_weight": 0, "tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"z_loss_weight": 0, "rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling"),
        ({"z_loss_weight": 0, "num_key_value_heads": 2}, "num_key_value_heads 2"),
    ],
    ids=str,
)
def test_what_cannot_be_run_of_baichuan_is_refused_by_name(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        model_config(BAICHUAN | change)


QWEN: dict[str, object] = {
    "architectures": ["QWenLMHeadModel"],
    "model_type": "qwen",
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 32768,
    "seq_length": 8192,
    "kv_channels": 128,
    "use_logn_attn": True,
    "use_dynamic_ntk": False,
}
FIRST_QWEN: dict[str, object] = {
    "architectures": ["QWenLMHeadModel"],
    "model_type": "qwen",
    "vocab_size": 151851,
    "padded_vocab_size": 151936,
    "n_embd": 4096,
    "ffn_hidden_size": 22016,
    "n_layer": 32,
    "n_head": 32,
    "n_positions": 8192,
    "seq_length": 2048,
    "rotary_emb_base": 20000,
    "use_dynamic_ntk": False,
}


@pytest.mark.parametrize("stated", [QWEN, FIRST_QWEN], ids=["later", "first"])
def test_both_generations_of_qwens_keys_are_read(stated: dict[str, object]) -> None:
    config = model_config(stated)

    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (
        151936, 4096, 11008
    )  # fmt: skip
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (32, 32, 32)
    assert config.context_length == stated.get("max_position_embeddings", 8192)
    assert config.rope.theta == stated.get("rotary_emb_base", 10000)
    assert config.logn == stated["seq_length"]


def test_the_name_that_dashinfer_has_for_qwen_is_understood() -> None:
    named = model_config(QWEN | {"architectures": None, "model_type": "Qwen_v10"})

    assert named == model_config(QWEN)


def test_queries_that_do_not_grow_have_no_base() -> None:
    assert model_config(QWEN | {"use_logn_attn": False}).logn is None


def test_the_base_of_a_qwen_follows_the_prompt_where_asked() -> None:
    plain, stretched = model_config(QWEN), model_config(QWEN | {"use_dynamic_ntk": True})

    assert (plain.ntk_length, plain.num_rotary_stages) == (None, 1)
    assert (stretched.ntk_length, stretched.num_rotary_stages) == (8192, 3)
    assert stretched.context_length == 32768


@pytest.mark.parametrize("length", [1, 59, 60, 61, 120, 121, 240, 241, 480, 481])
def test_stages_are_the_powers_of_two_that_qwens_own_formula_gives(length: int) -> None:
    alpha = max(2 ** ceil(log2(length / 60) + 1) - 1, 1)

    assert 2 ** (ntk_stage(length, 60) + 1) - 1 == alpha
    assert ntk_stage(length, None) == 0


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"no_bias": False}, UnsupportedModelError, "no_bias"),
        ({"rotary_pct": 0.25}, UnsupportedModelError, "rotary_pct"),
        ({"scale_attn_weights": False}, UnsupportedModelError, "scale_attn_weights"),
        ({"visual": {"layers": 48}}, UnsupportedModelError, "visual"),
        ({"kv_channels": 64}, UnsupportedModelError, "kv_channels 64"),
        ({"rope_scaling": {"type": "linear"}}, UnsupportedModelError, "rope_scaling"),
        ({"intermediate_size": 11007}, CheckpointError, "11007 is odd"),
        ({"seq_length": None}, CheckpointError, "seq_length"),
        ({"seq_length": 1}, CheckpointError, "seq_length 1 with heads of 128"),
        ({"hidden_size": 64, "kv_channels": 2}, CheckpointError, "with heads of 2 makes"),
        (
            {"use_dynamic_ntk": True, "seq_length": 3, "max_position_embeddings": 1 << 20},
            UnsupportedModelError,
            "max_position_embeddings 1048576 with heads of 128",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_run_of_qwen_is_refused_by_name(
    change: dict[str, object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        model_config(QWEN | change)
