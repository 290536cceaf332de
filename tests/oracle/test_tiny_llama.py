"""Checkpoints saved by transformers, converted and run by us, against transformers' own logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.config import ModelConfig, RopeConfig
from tests.model.numpy_llama import llama_logits
from tests.oracle.tiny_llama import CASES, TinyCase, save_tiny_llama
from tests.oracle.witness import choices, relative_error, whole_logits

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

pytestmark = pytest.mark.oracle

# Past one attention segment (128 keys) and several pages; a prime.
NUM_TOKENS = 149


@dataclass(frozen=True, slots=True)
class Pair:
    """One checkpoint on both sides, and the tokens to try it with."""

    theirs: LlamaForCausalLM
    directory: str
    token_ids: list[int]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: TinyCase = request.param
    directory = tmp_path_factory.mktemp("tiny")
    theirs = save_tiny_llama(case, directory)
    ids = np.random.default_rng(5).integers(theirs.config.vocab_size, size=NUM_TOKENS)
    return Pair(theirs, str(directory), ids.tolist())


@pytest.fixture(scope="module")
def ours(pair: Pair) -> Iterator[LLM]:
    with LLM(pair.directory, weights="fp32") as llm:
        yield llm


def test_the_numpy_llama_agrees_with_transformers(pair: Pair) -> None:
    logits = llama_logits(_config(pair.theirs), _weights(pair.theirs), pair.token_ids, np.float64)

    # Float32 against float64 over 3 layers.
    assert relative_error(whole_logits(pair.theirs, pair.token_ids), logits).max() <= 1e-5


def test_a_rotary_base_off_by_a_tenth_would_show(pair: Pair) -> None:
    config = _config(pair.theirs)
    wrong = replace(config, rope=RopeConfig(theta=config.rope.theta * 1.1))
    weights = _weights(pair.theirs)

    error = relative_error(
        llama_logits(wrong, weights, pair.token_ids), llama_logits(config, weights, pair.token_ids)
    )

    # A hundred times what the comparisons below allow.
    assert error.max() >= 1e-2


def test_logits_agree_with_transformers(pair: Pair, ours: LLM) -> None:
    logits = ours.logits(pair.token_ids)

    expected = whole_logits(pair.theirs, pair.token_ids)
    assert logits.shape == expected.shape
    assert relative_error(logits, expected).max() <= 1e-4


def test_16_greedy_tokens_agree_with_transformers(pair: Pair, ours: LLM) -> None:
    prompt = pair.token_ids[:121]  # the answer crosses from one attention segment to the next
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)

    (output,) = ours.generate([{"prompt_token_ids": prompt}], params)

    tokens = list(output.outputs[0].token_ids)
    rows = whole_logits(pair.theirs, [*prompt, *tokens[:-1]])
    expected, margin = choices(rows[len(prompt) - 1 :])
    assert len(tokens) == 16
    assert tokens == expected, f"the closest choice led by {margin:.1e} of the row's largest"


def _config(model: LlamaForCausalLM) -> ModelConfig:
    c = model.config
    return ModelConfig(
        model_type="llama",
        vocab_size=c.vocab_size,
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_layers=c.num_hidden_layers,
        num_heads=c.num_attention_heads,
        num_kv_heads=c.num_key_value_heads,
        head_dim=c.head_dim,
        norm_eps=c.rms_norm_eps,
        context_length=c.max_position_embeddings,
        rope=RopeConfig(theta=c.rope_parameters["rope_theta"]),
        tie_word_embeddings=c.tie_word_embeddings,
        attention_bias=c.attention_bias,
        mlp_bias=c.mlp_bias,
    )


def _weights(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}
