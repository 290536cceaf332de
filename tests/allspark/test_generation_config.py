"""Each key of a generation config means something, or is refused by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dashinfer_lab.allspark import ASGenerationConfigBuilder
from dashinfer_lab.allspark.generation_config import sampling_params
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.sampling import SamplingParams

WHOLE: dict[str, Any] = {
    "temperature": 0.9,
    "early_stopping": True,
    "top_k": 1024,
    "top_p": 0.8,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "min_length": 12,
    "max_length": 8192,
    "no_repeat_ngram_size": 3,
    "eos_token_id": 2,
    "seed": 1234,
    "stop_words_ids": [[5], [6, 7]],
    "bad_words_ids": [[8, 9]],
    "logprobs": True,
    "top_logprobs": 2,
    "do_sample": True,
    "num_beams": 1,
    "lora_name": "",
    "uuid": "mine",
}


def params(config: dict[str, Any], **defaults: Any) -> SamplingParams:
    return sampling_params(config, defaults, num_prompt_tokens=10, longest=100)


def test_every_key_has_its_meaning() -> None:
    expected = SamplingParams(
        temperature=0.9,
        top_k=1024,
        top_p=0.8,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        min_tokens=2,
        max_tokens=90,
        no_repeat_ngram_size=3,
        ignore_eos=True,
        stop_token_ids=[2],
        seed=1234,
        stop_words_ids=[[5], [6, 7]],
        bad_words_ids=[[8, 9]],
        logprobs=2,
        detokenize=False,
    )

    assert params(WHOLE) == expected


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({}, "max_tokens", 90),
        ({"max_length": 30}, "max_tokens", 20),
        ({"max_new_tokens": 30}, "max_tokens", 30),
        ({"max_new_tokens": 300}, "max_tokens", 90),
        ({"max_new_tokens": 30, "max_length": 30}, "max_tokens", 20),
        ({"min_length": 5}, "min_tokens", 0),
        ({"do_sample": False, "temperature": 2.0}, "temperature", 0.0),
        ({"early_stopping": False, "eos_token_id": 2}, "stop_token_ids", ()),
        ({"early_stopping": False}, "ignore_eos", True),
        ({"eos_token_id": -1}, "ignore_eos", False),
        ({"eos_token_id": [2, 3]}, "stop_token_ids", (2, 3)),
        ({"top_logprobs": 4}, "logprobs", None),
        ({"logprobs": True}, "logprobs", 0),
        ({"top_p": None}, "top_p", 0.6),
    ],
)
def test_lengths_ends_and_defaults(config: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(params(config, top_p=0.6), field) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_beams", 4),
        ("num_return_sequences", 2),
        ("length_penalty", 0.5),
        ("suppress_repetition_in_generation", True),
        ("enable_tensors_from_model_inference", True),
        ("lora_name", "mine"),
        ("mm_info", object()),
        ("response_format", {"type": "json_object"}),
        ("vocab", {"a": 1}),
        ("temprature", 1.0),
        ("top_n", 5),
        ("num_beams", np.array([1, 1])),
    ],
)
def test_what_is_not_here_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=key):
        params({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", float("inf")),
        ("top_p", 1.5),
        ("do_sample", 1),
        ("max_length", -1),
        ("max_length", 2.5),
        ("max_new_tokens", "5"),
        ("min_length", True),
        ("seed", "x"),
        ("stop_words_ids", [5]),
        ("eos_token_id", np.array([1, 2])),
        ("eos_token_id", "x"),
    ],
)
def test_values_without_sense_are_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(RequestError, match=key.replace("min_length", "min_")):
        params({key: value})


def test_a_builder_collects_and_refuses_unknown_names() -> None:
    builder = ASGenerationConfigBuilder(seed=3, eos_token_id=7)
    builder.do_sample(False).early_stopping(False).log_probs(True, 2).max_length(9)
    expected = {
        "seed": 3,
        "eos_token_id": 7,
        "do_sample": False,
        "early_stopping": False,
        "logprobs": True,
        "top_logprobs": 2,
        "max_length": 9,
    }

    assert builder.build() == expected
    with pytest.raises(ConfigError, match="max_tokens"):
        builder.update({"max_tokens": 5})


def test_a_config_of_transformers_gives_what_it_has_in_common() -> None:
    stated = {"temperature": 0.7, "early_stopping": "never", "use_cache": True, "top_k": 20}
    builder = ASGenerationConfigBuilder(SimpleNamespace(to_diff_dict=lambda: stated))

    assert builder.build() == {"temperature": 0.7, "top_k": 20}


def test_new_tokens_of_a_config_of_transformers_are_a_length_until_one_is_set() -> None:
    stated = {"max_length": 40, "max_new_tokens": 5}
    builder = ASGenerationConfigBuilder(SimpleNamespace(to_diff_dict=lambda: dict(stated)))
    assert params(builder.build()).max_tokens == 5

    assert params(builder.max_length(30).build()).max_tokens == 20
    assert params(builder.update({"max_new_tokens": 7}).build()).max_tokens == 7
