"""config.json of single families: their own keys and defaults, and what is refused of them."""

from __future__ import annotations

import pytest

from dashinfer_lab.config import RopeConfig
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
