"""Graphs that a family might describe in another order, or at all: right, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.config import ModelConfig
from dashinfer_lab.errors import ArtifactError, UnsupportedModelError
from dashinfer_lab.graph import GraphBuilder, Value
from tests.convert.test_onnxruntime import Runtime
from tests.lower.made_family import converted

CONFIG = {
    "architectures": ["UnusualForCausalLM"],
    "vocab_size": 37,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}

Part = Callable[[GraphBuilder, ModelConfig, Value, Value], Value]


def attended(g: GraphBuilder, c: ModelConfig, q: Value, k: Value, v: Value) -> Value:
    a = g.attention("attention", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_heads)
    return g.linear("o", a, c.hidden_size)


def usual_attention(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    q, k, v = (g.linear(it, h, c.hidden_size) for it in ("q", "k", "v"))
    return x + attended(g, c, g.rotary(q, c.num_heads), g.rotary(k, c.num_heads), v)


def keys_first(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    k, q, v = (g.linear(it, h, c.hidden_size) for it in ("k", "q", "v"))
    return x + attended(g, c, g.rotary(q, c.num_heads), g.rotary(k, c.num_heads), v)


def queries_read_again(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    q, k, v = (g.linear(it, h, c.hidden_size) for it in ("q", "k", "v"))
    x = x + attended(g, c, g.rotary(q, c.num_heads), g.rotary(k, c.num_heads), v)
    return x + g.linear("of_queries", q, c.hidden_size)


def keys_as_values(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    q, k = (g.linear(it, h, c.hidden_size) for it in ("q", "k"))
    return x + attended(g, c, g.rotary(q, c.num_heads), g.rotary(k, c.num_heads), k)


def values_gated_too(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    gate = g.linear("gate_of_values", h, c.hidden_size)
    q, k, v = (g.linear(it, h, c.hidden_size) for it in ("q", "k", "v"))
    x = x + g.linear("z", g.silu(gate) * v, c.hidden_size)
    return x + attended(g, c, g.rotary(q, c.num_heads), g.rotary(k, c.num_heads), v)


def usual_mlp(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    gate, up = (g.linear(it, h, c.intermediate_size) for it in ("gate", "up"))
    return x + g.linear("down", g.silu(gate) * up, c.hidden_size)


def up_first(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    up, gate = (g.linear(it, h, c.intermediate_size) for it in ("up", "gate"))
    return x + g.linear("down", up * g.silu(gate), c.hidden_size)


def ups_read_again(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    gate, up = (g.linear(it, h, c.intermediate_size) for it in ("gate", "up"))
    x = x + g.linear("down", g.silu(gate) * up, c.hidden_size)
    return x + g.linear("of_ups", up, c.hidden_size)


def gated_by_itself(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    gate = g.silu(g.linear("gate", h, c.intermediate_size))
    return x + g.linear("down", gate * gate, c.hidden_size)


def normalised_sum(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    low, skip = (g.linear(it, h, c.hidden_size) for it in ("low", "skip"))
    y = g.rmsnorm("norm_of_low", low, eps=c.norm_eps) + skip
    return x + g.linear("down", y, c.hidden_size)


def gated_stream(g: GraphBuilder, c: ModelConfig, x: Value, h: Value) -> Value:
    gate = g.linear("gate", h, c.hidden_size)
    return x + g.linear("down", g.silu(gate) * x, c.hidden_size)


def usual_head(g: GraphBuilder, c: ModelConfig, h: Value) -> Value:
    return g.head("lm_head", h, c.vocab_size)


def adapted_head(g: GraphBuilder, c: ModelConfig, h: Value) -> Value:
    return g.head("lm_head", h, c.vocab_size) + g.linear("adapter", h, c.vocab_size)


def largest_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attention: Part = usual_attention,
    mlp: Part = usual_mlp,
    head: Callable[[GraphBuilder, ModelConfig, Value], Value] = usual_head,
) -> float:
    """Of the model's logits against ONNX Runtime's on the same artifact, relative."""

    def unusual(g: GraphBuilder, c: ModelConfig) -> Value:
        x = g.embedding("model.embed", g.input_ids, c.vocab_size, c.hidden_size)
        for _ in g.layers("model.layers", c.num_layers):
            x = attention(g, c, x, g.rmsnorm("norm", x, eps=c.norm_eps))
            x = mlp(g, c, x, g.rmsnorm("norm2", x, eps=c.norm_eps))
        return head(g, c, g.rmsnorm("model.norm", x, eps=c.norm_eps))

    artifact = converted(unusual, CONFIG, tmp_path / "converted", monkeypatch)
    ids = np.random.default_rng(5).integers(37, size=101)  # of 65 on, products make gated units
    runtime = Runtime(artifact)
    expected, _ = runtime.step(ids, 0, runtime.empty())
    with LLM(artifact.directory, threads=2) as llm:
        errors = [np.abs(llm.logits(ids[:n].tolist()) - expected[:n]).max() for n in (21, 101)]
        return float(max(errors) / np.abs(expected).max())


@pytest.mark.parametrize("mlp", [usual_mlp, up_first, gated_stream, ups_read_again])
def test_an_mlp_in_another_order_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlp: Part
) -> None:
    assert largest_error(tmp_path, monkeypatch, mlp=mlp) < 1e-5


@pytest.mark.parametrize("attention", [keys_first, queries_read_again])
def test_queries_made_or_read_in_another_order_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attention: Part
) -> None:
    assert largest_error(tmp_path, monkeypatch, attention) < 1e-5


@pytest.mark.parametrize(
    ("attention", "mlp", "said"),
    [
        (keys_as_values, usual_mlp, "reads one value twice"),
        (values_gated_too, usual_mlp, "already lies beside other values"),
        (usual_attention, gated_by_itself, "has no kernel of its own"),
        (usual_attention, normalised_sum, "computed for linear layers alone"),
    ],
)
def test_what_no_kernel_computes_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attention: Part, mlp: Part, said: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=said):
        largest_error(tmp_path, monkeypatch, attention, mlp)


def test_logits_that_a_sum_makes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ArtifactError, match="makes the logits, which a linear layer must"):
        largest_error(tmp_path, monkeypatch, head=adapted_head)
