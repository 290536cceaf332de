"""A family that is added from outside the package: read, built, replaced, and never another's."""

from __future__ import annotations

import pytest

from dashinfer_lab.errors import ConfigError, UnsupportedModelError
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.hub import families, model_config
from dashinfer_lab.models import Family, build_graph, register, registry, supported_models
from dashinfer_lab.quantize import Scheme

CONFIG = {
    "architectures": ["TinyForCausalLM"],
    "model_type": "tiny",
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
}
TINY = Family("tiny", "TinyForCausalLM", norm_eps=1e-3)


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_added", {})
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))


def embedding_and_head(g: GraphBuilder, c: object) -> Value:
    x = g.embedding("embed", g.input_ids, 32, 64)
    return g.head("head", g.rmsnorm("norm", x, eps=1e-3), 32)


def head_alone(g: GraphBuilder, c: object) -> Value:
    return g.head("head", g.embedding("embed", g.input_ids, 32, 64), 32)


def weights_of_tiny() -> list[str]:
    graph = build_graph(model_config(CONFIG), Scheme.parse("fp32"))
    return [weight.name for weight in graph.weights]


def test_a_family_is_refused_until_it_is_registered_and_then_built() -> None:
    with pytest.raises(UnsupportedModelError, match="TinyForCausalLM"):
        model_config(CONFIG)

    register(TINY)(embedding_and_head)

    assert model_config(CONFIG).norm_eps == 1e-3
    assert weights_of_tiny() == ["embed.weight", "norm.weight", "head.weight"]
    assert "tiny" not in supported_models()


def test_registered_again_it_takes_the_formers_place() -> None:
    register(TINY)(embedding_and_head)
    register(Family("tiny", "TinyForCausalLM", norm_eps=0.5))(head_alone)

    assert model_config(CONFIG).norm_eps == 0.5
    assert weights_of_tiny() == ["embed.weight", "head.weight"]


@pytest.mark.parametrize(
    "family",
    [
        Family("llama", "TinyForCausalLM"),
        Family("tiny", "Qwen2ForCausalLM"),
        Family("tiny", "TinyForCausalLM", ("Qwen_v20",)),
        Family("tiny", "TinyForCausalLM", also=("BaiChuanForCausalLM",)),
    ],
    ids=lambda family: "-".join([family.model_type, *family.aliases, *family.also]),
)
def test_names_of_the_packages_own_are_refused(family: Family) -> None:
    with pytest.raises(ConfigError, match="comes with the package"):
        register(family)(head_alone)

    assert families.families() == families.FAMILIES
