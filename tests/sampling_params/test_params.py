from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling import Logprob, SamplingParams, TokenLogprobs

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", NAN),
        ("temperature", INF),
        ("temperature", -INF),
        ("temperature", -0.1),
        ("temperature", 1e39),
        ("temperature", 10**400),
        ("temperature", "hot"),
        ("temperature", None),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", -0.5),
        ("top_p", 1.0001),
        ("top_p", NAN),
        ("top_p", 10**400),
        ("top_k", -2),
        ("top_k", 2**31),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2.0),
        ("n", 0),
        ("n", True),
        ("seed", -2),
        ("seed", 2**64),
        ("seed", 0.5),
        ("logprobs", -1),
        ("logprobs", 21),
        ("logprobs", True),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [3]),
        ("stop", b"x"),
        ("stop", 7),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", ["a"]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", 5),
        ("min_p", -0.1),
        ("min_p", 1.05),
        ("min_p", NAN),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", INF),
        ("repetition_penalty", NAN),
        ("repetition_penalty", 1e-39),
        ("presence_penalty", 2.5),
        ("presence_penalty", NAN),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", "much"),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("prompt_logprobs", -1),
        ("prompt_logprobs", 21),
        ("logit_bias", {"x": 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {True: 1.0}),
        ("logit_bias", [(1, 2.0)]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [-1]),
        ("bad_words", [""]),
        ("bad_words", 5),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [1]),
        ("stop_words_ids", [[3, -1]]),
        ("no_repeat_ngram_size", -1),
        ("output_kind", 1),
        ("truncate_prompt_tokens", 0),
        ("truncate_prompt_tokens", -2),
        ("truncate_prompt_tokens", 1.0),
        ("no_repeat_ngram_size", 1.0),
        ("logits_processors", ["f"]),
        ("logits_processors", len),
        ("detokenize", None),
        ("include_stop_str_in_output", 0),
        ("ignore_eos", 1),
        ("skip_special_tokens", None),
    ],
)
def test_a_nonsense_value_is_refused_with_its_name_and_value(option: str, value: object) -> None:
    with pytest.raises(RequestError, match="must be") as caught:
        SamplingParams(**{option: value})  # pyright: ignore[reportArgumentType]  # on purpose

    assert f"{option}={value!r:.200}" in str(caught.value)


def test_a_number_that_python_does_not_write_is_refused_too() -> None:
    with pytest.raises(RequestError, match=r"top_k=\(int\) is not possible"):
        SamplingParams(top_k=10**5000)


def test_checks_hold_when_asserts_are_switched_off() -> None:
    code = (
        "from dashinfer_lab.sampling import SamplingParams\n"
        "from dashinfer_lab.errors import RequestError\n"
        "try:\n    SamplingParams(temperature=float('nan'))\n"
        "except RequestError:\n    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "refused\n"


def test_the_defaults_are_those_of_vllm() -> None:
    params = SamplingParams()

    assert (params.n, params.temperature, params.top_p, params.top_k) == (1, 1.0, 1.0, 0)
    assert (params.max_tokens, params.seed, params.logprobs) == (16, None, None)
    assert (params.presence_penalty, params.frequency_penalty) == (0.0, 0.0)
    assert (params.repetition_penalty, params.min_p, params.min_tokens) == (1.0, 0.0, 0)
    assert (params.detokenize, params.include_stop_str_in_output) == (True, False)
    assert params.prompt_logprobs is None
    assert params.allowed_token_ids is None
    assert params.skip_special_tokens
    assert not params.ignore_eos


def test_values_at_the_edges_are_legal() -> None:
    params = SamplingParams(
        temperature=0, top_p=1, max_tokens=None, seed=2**64 - 1, logprobs=0, stop_token_ids=(0,)
    )

    assert params.max_tokens is None
    assert SamplingParams(logprobs=20, seed=0, max_tokens=1, top_p=1e-9).logprobs == 20


@pytest.mark.parametrize("value", [NAN, INF, 1e7, "x", None])
def test_a_bias_that_is_no_number_is_refused_with_its_id(value: object) -> None:
    with pytest.raises(RequestError, match=r"logit_bias\[7\]=.* must be"):
        SamplingParams(logit_bias={7: value})  # pyright: ignore[reportArgumentType]  # on purpose


def test_biases_may_be_spelled_as_json_spells_them() -> None:
    params = SamplingParams(logit_bias={"15": -1})  # pyright: ignore[reportArgumentType]

    assert params.logit_bias == {15: -1.0}


def test_equal_params_are_one_key() -> None:
    params = [SamplingParams(seed=1, stop=["a"], bad_words=["b"]) for _ in range(2)]

    assert len(set(params)) == 1


def test_greedy_switches_filters_off_and_has_one_choice() -> None:
    params = SamplingParams(temperature=1e-6, top_k=3, top_p=0.5, min_p=0.1)

    assert params.greedy
    assert (params.top_k, params.top_p, params.min_p) == (0, 1.0, 0.0)
    with pytest.raises(RequestError, match="n=2 is not possible: it must be 1 with temperature=0"):
        SamplingParams(temperature=0, n=2)


def test_lists_of_ids_hold_each_once_and_do_not_change_later() -> None:
    words = [[1, 2], [3], [1, 2]]
    params = SamplingParams(stop_token_ids=[5, 5, 6], bad_words_ids=words, bad_words="no")
    words[0].append(9)

    assert params.stop_token_ids == (5, 6)
    assert params.bad_words_ids == ((1, 2), (3,))
    assert params.bad_words == ("no",)


@pytest.mark.parametrize("top_k", [0, -1])
def test_both_spellings_of_no_top_k_are_one(top_k: int) -> None:
    assert SamplingParams(top_k=top_k).top_k == 0


def test_seed_minus_one_is_no_seed() -> None:
    assert SamplingParams(seed=-1).seed is None


@pytest.mark.parametrize(
    ("stop", "strings"), [(None, ()), ("END", ("END",)), (["a", "bc"], ("a", "bc")), ([], ())]
)
def test_stop_is_a_text_or_a_list(stop: str | list[str] | None, strings: tuple[str, ...]) -> None:
    assert SamplingParams(stop=stop).stop_strings == strings


def test_later_changes_of_a_list_do_not_reach_the_params() -> None:
    stops = ["a"]
    params = SamplingParams(stop=stops)
    stops.append("")

    assert params.stop_strings == ("a",)


def test_the_drawn_token_is_among_the_logprobs_whatever_its_rank() -> None:
    found = TokenLogprobs(7, -4.5, 31, ((3, -0.5), (1, -1.5)))

    assert found.as_dict() == {3: Logprob(-0.5, 1), 1: Logprob(-1.5, 2), 7: Logprob(-4.5, 31)}
    assert list(found.as_dict()) == [3, 1, 7]


def test_a_drawn_token_that_is_likely_is_listed_once() -> None:
    found = TokenLogprobs(3, -0.5, 1, ((3, -0.5), (1, -1.5)))

    assert found.as_dict(lambda i: f"<{i}>") == {
        3: Logprob(-0.5, 1, "<3>"),
        1: Logprob(-1.5, 2, "<1>"),
    }


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("best_of", "ask for n answers"),
        ("use_beam_search", "LLM.beam_search"),
        ("guided_decoding", "logits_processors"),
        ("max_new_tokens", "max_tokens"),
        ("temprature", "did you mean temperature?"),
        ("zzz", "there are n, presence_penalty"),
    ],
)
def test_an_option_it_does_not_have_is_refused_with_the_way_out(name: str, way_out: str) -> None:
    options: dict[str, Any] = {name: 3}
    with pytest.raises(RequestError, match=f"{name}=3 is no option of sampling") as refused:
        SamplingParams(**options)

    assert way_out in str(refused.value)
