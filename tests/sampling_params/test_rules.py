"""Rules kept up token by token say what the whole history, read anew, says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling import LogitEdits, LogitRules, SamplingParams, bad_word_ids

NUM_IDS = 6
IDS = st.lists(st.integers(0, NUM_IDS - 1), max_size=20)
WORDS = st.lists(st.lists(st.integers(0, NUM_IDS - 1), min_size=1, max_size=3), max_size=4)


def after(
    params: SamplingParams, prompt: Sequence[int], output: Sequence[int], **options: object
) -> LogitEdits | None:
    """The edits of the draw that follows prompt and output."""
    given: dict[str, Any] = {"num_ids": NUM_IDS, **options}
    rules = LogitRules.where_needed(params, prompt, **given)
    if rules is None:
        return None
    for token_id in output:
        rules.edits()  # asking changes nothing
        rules.observe(token_id)
    return rules.edits()


def biases(edits: LogitEdits | None) -> dict[int, float]:
    """Ids and what is added to their logits."""
    if edits is None:
        return {}
    values = edits.biases[:, 1].copy().view(np.float32)
    return dict(zip(edits.biases[:, 0].tolist(), values.tolist(), strict=True))


def banned(edits: LogitEdits | None) -> set[int]:
    return {token_id for token_id, bias in biases(edits).items() if bias == -np.inf}


@given(prompt=IDS, output=IDS)
def test_repetition_counts_prompt_and_output_each_id_once(
    prompt: list[int], output: list[int]
) -> None:
    edits = after(SamplingParams(repetition_penalty=1.5), prompt, output)

    counts = Counter(output)
    expected = {token_id: counts[token_id] for token_id in {*prompt, *output}}
    found = [] if edits is None else edits.penalised.tolist()
    assert len(found) == len(expected)
    assert dict(found) == expected


@given(prompt=IDS, output=IDS)
def test_presence_and_frequency_count_the_output_alone(
    prompt: list[int], output: list[int]
) -> None:
    edits = after(SamplingParams(presence_penalty=0.5, frequency_penalty=0.1), prompt, output)

    found = {} if edits is None else dict(edits.penalised.tolist())
    assert found == Counter(output)


def test_counts_grow_beyond_the_first_allocation() -> None:
    rules = LogitRules(SamplingParams(presence_penalty=1), [], num_ids=5000)
    for token_id in [*range(1000), *range(500)]:
        rules.observe(token_id)
    edits = rules.edits()

    assert edits is not None
    assert dict(edits.penalised.tolist()) == {i: 2 if i < 500 else 1 for i in range(1000)}


@given(output=IDS, words=WORDS)
def test_the_last_id_of_a_bad_word_is_banned_where_it_would_complete_it(
    output: list[int], words: list[list[int]]
) -> None:
    edits = after(SamplingParams(), [0, 1, 2], output, words=words)

    expected = {w[-1] for w in words if len(w) == 1 or output[-len(w) + 1 :] == w[:-1]}
    assert banned(edits) == expected


@given(prompt=IDS, output=IDS, size=st.integers(1, 4))
def test_no_run_comes_twice(prompt: list[int], output: list[int], size: int) -> None:
    edits = after(SamplingParams(no_repeat_ngram_size=size), prompt, output)

    history = [*prompt, *output]
    runs = {tuple(history[i : i + size]) for i in range(len(history) - size + 1)}
    recent = tuple(history[len(history) - size + 1 :])
    expected = {i for i in range(NUM_IDS) if len(recent) == size - 1 and (*recent, i) in runs}
    assert banned(edits) == expected


def test_nothing_may_stop_before_min_tokens() -> None:
    params = SamplingParams(min_tokens=2)

    assert banned(after(params, [1], [], end_ids=[4, 99])) == {4}
    assert banned(after(params, [1], [0], end_ids=[4, 99])) == {4}
    assert after(params, [1], [0, 0], end_ids=[4, 99]) is None


def test_biases_and_allowed_ids_come_as_they_are() -> None:
    edits = after(SamplingParams(logit_bias={3: -1.5, 0: 2.0}, allowed_token_ids=[5, 0]), [], [])

    assert edits is not None
    assert biases(edits) == {3: -1.5, 0: 2.0}
    assert edits.allowed.tolist() == [5, 0]


def test_an_id_that_is_biased_and_banned_is_both() -> None:
    edits = after(SamplingParams(logit_bias={3: 1.0}), [], [], words=[[3]])

    assert edits is not None
    assert edits.biases[:, 0].tolist() == [3, 3]


@pytest.mark.parametrize(
    "options",
    [
        {"logit_bias": {NUM_IDS: 1.0}},
        {"allowed_token_ids": [0, NUM_IDS]},
        {"stop_token_ids": [NUM_IDS]},
        {"stop_words_ids": [[0, NUM_IDS]]},
        {"bad_words_ids": [[NUM_IDS, 0]]},
    ],
    ids=str,
)
def test_an_id_the_model_does_not_know_is_refused_by_option(options: dict[str, object]) -> None:
    params = SamplingParams(**options)  # pyright: ignore[reportArgumentType]  # names are checked

    with pytest.raises(RequestError, match=f"{next(iter(options))} names .6., but .* 0..5"):
        LogitRules.where_needed(params, [0], num_ids=NUM_IDS)


def test_a_request_without_such_options_has_no_rules() -> None:
    params = SamplingParams(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, stop="x", seed=3)

    assert LogitRules.where_needed(params, [0], num_ids=NUM_IDS) is None


def test_the_cost_of_a_draw_does_not_grow_with_the_prompt() -> None:
    params = SamplingParams(repetition_penalty=1.1, no_repeat_ngram_size=3)
    rules = LogitRules(params, list(range(1000)) * 32, num_ids=1000)
    edits = rules.edits()

    assert edits is not None
    assert len(edits.penalised) == 1000
    rules.observe(7)
    again = rules.edits()
    assert again is not None
    assert again.penalised.base is edits.penalised.base  # counted on, not counted anew


def test_a_bad_word_is_spelled_with_and_without_a_space() -> None:
    spelled = {"cat": [1], " cat": [2], "dogs": [3, 4], " dogs": [5, 3, 4], "x": [6], " x": [6]}

    assert bad_word_ids([" cat", "dogs", "x"], spelled.__getitem__) == [(1,), (2,), (3, 4), (6,)]
    with pytest.raises(RequestError, match="bad_words names '~'"):
        bad_word_ids(["~"], lambda text: [])
