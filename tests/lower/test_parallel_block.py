"""Attention and MLP that read one norm: five linears of one input, in two buffers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.config import ModelConfig
from dashinfer_lab.convert import Artifact
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.lower import lowered_ops
from tests.convert.test_onnxruntime import Runtime
from tests.lower.made_family import converted

CONFIG = {
    "architectures": ["ParallelForCausalLM"],
    "vocab_size": 37,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}


def parallel(g: GraphBuilder, c: ModelConfig) -> Value:
    x = g.embedding("model.embed", g.input_ids, c.vocab_size, c.hidden_size)
    for _ in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("norm", x, eps=c.norm_eps)
        q, k, v = (g.linear(it, h, c.hidden_size) for it in ("q", "k", "v"))
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_heads)
        a = g.attention("attention", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_heads)
        gate, up = (g.linear(it, h, c.intermediate_size) for it in ("gate", "up"))
        x = x + g.linear("o", a, c.hidden_size)
        x = x + g.linear("down", g.silu(gate) * up, c.hidden_size)
    return g.head("lm_head", g.rmsnorm("model.norm", x, eps=c.norm_eps), c.vocab_size)


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    return converted(parallel, CONFIG, tmp_path / "converted", monkeypatch)


def test_the_two_blocks_are_each_one_linear_and_right(artifact: Artifact) -> None:
    names = [op.name for op in lowered_ops(artifact) if op.kind == "linear" and op.layer == 1]
    ids = np.random.default_rng(5).integers(37, size=41)
    runtime = Runtime(artifact)
    (expected, _) = runtime.step(ids, 0, runtime.empty())

    with LLM(artifact.directory, threads=2) as llm:
        logits = llm.logits(ids.tolist())

    assert sorted(name.rpartition(".")[2] for name in names) == ["down", "gate+up", "o", "q+k+v"]
    # Sums of at most 96 terms in float32, a dozen in a row.
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
