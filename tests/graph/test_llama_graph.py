"""What the Llama file declares: weights, their formats, names of nodes, and what is refused."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest

from dashinfer_lab.config import RopeConfig
from dashinfer_lab.errors import UnsupportedModelError
from dashinfer_lab.graph.render import listing
from dashinfer_lab.graph.rope import rotary_table
from dashinfer_lab.models import build_graph, supported_models
from dashinfer_lab.quantize import Scheme
from tests.convert.memory_checkpoint import tiny_config

FP32 = Scheme.parse("fp32")
A16W8 = Scheme.parse("a16w8")


def test_weights_carry_the_names_and_shapes_of_hugging_face() -> None:
    graph = build_graph(tiny_config(num_layers=1), FP32)

    assert {weight.name: weight.shape for weight in graph.weights} == {
        "model.embed_tokens.weight": (101, 60),
        "model.layers.0.input_layernorm.weight": (60,),
        "model.layers.0.self_attn.q_proj.weight": (60, 60),
        "model.layers.0.self_attn.k_proj.weight": (20, 60),
        "model.layers.0.self_attn.v_proj.weight": (20, 60),
        "model.layers.0.self_attn.o_proj.weight": (60, 60),
        "model.layers.0.post_attention_layernorm.weight": (60,),
        "model.layers.0.mlp.gate_proj.weight": (150, 60),
        "model.layers.0.mlp.up_proj.weight": (150, 60),
        "model.layers.0.mlp.down_proj.weight": (60, 150),
        "model.norm.weight": (60,),
    }
    assert graph.num_parameters == sum(prod(weight.shape) for weight in graph.weights)


def test_an_untied_head_and_biases_are_declared_where_the_config_asks() -> None:
    config = tiny_config(tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
    names = {weight.name: weight.role for weight in build_graph(config, FP32).weights}

    assert names["lm_head.weight"] == "head"
    assert names["model.embed_tokens.weight"] == "embedding"
    biases = sorted(name.removeprefix("model.layers.1.") for name in names if ".1." in name)
    assert [name for name in biases if name.endswith(".bias")] == [
        "mlp.down_proj.bias",
        "mlp.gate_proj.bias",
        "mlp.up_proj.bias",
        "self_attn.k_proj.bias",
        "self_attn.o_proj.bias",
        "self_attn.q_proj.bias",
        "self_attn.v_proj.bias",
    ]


def test_formats_follow_the_scheme_and_not_the_model() -> None:
    tied = build_graph(tiny_config(), A16W8)
    untied = build_graph(tiny_config(tie_word_embeddings=False), Scheme.parse("a16w8:32"))
    matrices = {weight.name: weight for weight in untied.weights if weight.is_matrix}

    assert Counter(weight.format for weight in tied.weights) == {"u8": 15, "f32": 5}
    assert matrices.pop("model.embed_tokens.weight").format == "bf16"
    assert matrices.pop("lm_head.weight").group_size == 64
    assert {weight.group_size for weight in matrices.values()} == {32}


def test_weights_that_can_be_fused_are_declared_one_after_another() -> None:
    names = [weight.name for weight in build_graph(tiny_config(), FP32).weights]
    matrices = [name for name in names if "norm" not in name]

    assert [name.split(".")[-2] for name in matrices[1:8]] == [
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    ]


def test_a_layer_reads_like_the_paper() -> None:
    graph = build_graph(tiny_config(num_layers=1, attention_bias=True), A16W8)
    nodes = listing(graph.ir, "model.layers.0.").splitlines()
    shown = [line.replace("model.layers.0.", "") for line in nodes if "InstantDeq" not in line]

    assert shown[:9] == [
        "input_layernorm = RMSNormalization(model.embed_tokens, input_layernorm.weight) "
        "{axis=-1 epsilon=1e-05}",
        "self_attn.q_proj = MatMul(input_layernorm, self_attn.q_proj.weight.unpacked)",
        "self_attn.q_proj.biased = Add(self_attn.q_proj, self_attn.q_proj.bias)",
        "self_attn.k_proj = MatMul(input_layernorm, self_attn.k_proj.weight.unpacked)",
        "self_attn.k_proj.biased = Add(self_attn.k_proj, self_attn.k_proj.bias)",
        "self_attn.v_proj = MatMul(input_layernorm, self_attn.v_proj.weight.unpacked)",
        "self_attn.v_proj.biased = Add(self_attn.v_proj, self_attn.v_proj.bias)",
        "self_attn.q_proj.biased.rotary = RotaryEmbedding(self_attn.q_proj.biased, rope.cos, "
        "rope.sin, position_ids) {num_heads=6 interleaved=0}",
        "self_attn.k_proj.biased.rotary = RotaryEmbedding(self_attn.k_proj.biased, rope.cos, "
        "rope.sin, position_ids) {num_heads=2 interleaved=0}",
    ]
    assert shown[-3:] == [
        "mul_1 = Mul(mlp.gate_proj.silu, mlp.up_proj)",
        "mlp.down_proj = MatMul(mul_1, mlp.down_proj.weight.unpacked)",
        "add_2 = Add(add_1, mlp.down_proj)",
    ]


def test_the_summary_states_size_scheme_and_operators() -> None:
    text = repr(build_graph(tiny_config(), A16W8))

    assert "llama: 0.1 M parameters, scheme a16w8:64" in text
    assert "2 layers, hidden 60, 6 heads of 10 (2 for keys), vocabulary 101, context 40" in text
    assert "2 Attention" in text


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'gpt-x' is not supported.*llama"):
        build_graph(tiny_config(model_type="gpt-x"), FP32)


def test_the_registry_is_not_a_model() -> None:
    assert "llama" in supported_models()
    assert "registry" not in supported_models()


def test_a_rope_scaling_that_is_not_applied_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="rope scaling 'su'"):
        build_graph(tiny_config(rope=RopeConfig(scaling="su")), FP32)


def test_rotary_angles_are_right_at_large_positions() -> None:
    config = tiny_config(context_length=100_001, head_dim=64, rope=RopeConfig(theta=1e4))
    cos, sin = rotary_table(config, config.rope)

    angle = 100_000 * 1e4 ** -(2 * 3 / 64)
    assert cos.shape == sin.shape == (100_001, 32)
    # One rounding to float32 of a number below 1.
    np.testing.assert_allclose(cos[100_000, 3], np.cos(angle), atol=2**-24)
    np.testing.assert_allclose(sin[100_000, 3], np.sin(angle), atol=2**-24)
