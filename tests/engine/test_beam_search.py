"""Beam search against every sequence there is, and against its rules spelled out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab.beam_search import BeamSearchParams, BeamSearchSequence, search
from dashinfer_lab.engine import Engine
from dashinfer_lab.errors import RequestError
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner

END = 3
VOCAB = 7


class Words:
    """A tokenizer as far as a search asks it."""

    eos_ids = (END,)

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def logprobs(runner: FakeRunner, history: Sequence[int]) -> NDArray[np.float64]:
    row = runner.logits(history).astype(np.float64)
    return row - np.log(np.exp(row).sum())


def found(engine: Engine, prompt: list[int], params: BeamSearchParams) -> list[BeamSearchSequence]:
    (output,) = search(engine, [prompt], params, Words())  # type: ignore[arg-type]
    return output.sequences


def answers(runner: FakeRunner, prompt: list[int], length: int) -> list[tuple[list[int], float]]:
    """Every answer of up to `length` tokens, with the sum of its log-probabilities."""
    every: list[tuple[list[int], float]] = []
    for ids in itertools.product(range(runner.vocab_size), repeat=length):
        cut = list(ids[: ids.index(END) + 1]) if END in ids else list(ids)
        total = sum(logprobs(runner, prompt + cut[:i])[t] for i, t in enumerate(cut))
        every.append((cut, float(total)))
    return every


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beams_for_every_sequence_find_the_best(
    make_engine: MakeEngine, length_penalty: float
) -> None:
    runner = FakeRunner(vocab_size=4)
    params = BeamSearchParams(16, 2, length_penalty=length_penalty, early_stopping="never")
    best = found(make_engine(runner, max_chunk_tokens=8), [1, 2], params)[0]

    every = answers(runner, [1, 2], 2)
    ids, total = max(every, key=lambda each: each[1] / len(each[0]) ** length_penalty)
    assert best.tokens == [1, 2, *ids]
    assert best.cum_logprob == pytest.approx(total, rel=1e-5)
    assert best.text == " ".join(map(str, best.tokens))


def plain_search(
    runner: FakeRunner, prompt: list[int], width: int, length: int, penalty: float
) -> list[list[int]]:
    """The rules of early_stopping=True as one reads them."""
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for step in range(1, length + 1):
        following = [
            (total + float(row[t]), [*ids, t])
            for total, ids in beams
            for row in [logprobs(runner, prompt + ids)]
            for t in range(runner.vocab_size)
        ]
        following.sort(key=lambda each: -each[0])
        for total, ids in following[:width]:
            if ids[-1] == END or step == length:
                ended.append((total / len(ids) ** penalty, ids))
        ended = sorted(ended, key=lambda each: -each[0])[:width]
        if len(ended) == width:
            break
        beams = [each for each in following if each[1][-1] != END][:width]
    return [ids for _, ids in ended]


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("penalty", [-1.0, 0.5, 2.0])
def test_the_first_answers_that_end_are_the_beams(
    make_engine: MakeEngine, width: int, penalty: float
) -> None:
    runner = FakeRunner(vocab_size=VOCAB)
    engine = make_engine(runner)
    params = BeamSearchParams(width, 9, length_penalty=penalty, early_stopping=True)
    for first in range(5):
        sequences = found(engine, [first, 2], params)
        expected = plain_search(runner, [first, 2], width, 9, penalty)

        assert [each.tokens[2:] for each in sequences] == expected
        for each in sequences:
            assert each.finish_reason == ("stop" if each.tokens[-1] == END else "length")
            assert each.stop_reason == (END if each.tokens[-1] == END else None)


def test_never_goes_on_while_a_longer_answer_could_be_better(make_engine: MakeEngine) -> None:
    engine = make_engine(FakeRunner(vocab_size=VOCAB))
    scores: dict[object, float] = {}
    for early in (True, False, "never"):
        options: dict[str, Any] = {"early_stopping": early}
        params = BeamSearchParams(3, 12, length_penalty=2.0, **options)
        each = found(engine, [4, 4], params)[0]
        scores[early] = params.score(each.cum_logprob, len(each.tokens) - 2)

    assert scores["never"] >= scores[False] >= scores[True]
    assert scores["never"] > scores[True]


def test_ends_are_passed_where_they_are_ignored(make_engine: MakeEngine) -> None:
    engine = make_engine(FakeRunner(vocab_size=VOCAB))
    sequences = found(engine, [1], BeamSearchParams(4, 6, ignore_eos=True))

    assert [len(each.tokens) for each in sequences] == [7] * 4
    assert {each.finish_reason for each in sequences} == {"length"}
    assert engine.stats().num_pages_used == 0


def test_several_prompts_are_those_of_each_alone(make_engine: MakeEngine) -> None:
    engine = make_engine(FakeRunner(vocab_size=VOCAB))
    params = BeamSearchParams(3, 5)
    prompts = [[1], [2, 5], [6, 6, 6]]
    together = search(engine, prompts, params, Words())  # type: ignore[arg-type]

    assert [o.sequences for o in together] == [found(engine, p, params) for p in prompts]


def test_an_answer_beyond_the_context_is_refused_before_it_is_begun(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine(FakeRunner(vocab_size=VOCAB, context_length=20))
    with pytest.raises(RequestError, match="context of 20"):
        found(engine, [1] * 15, BeamSearchParams(2, 6))
    assert engine.stats().num_steps == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_width", 0),
        ("beam_width", 17),
        ("beam_width", True),
        ("max_tokens", 0),
        ("max_tokens", None),
        ("temperature", 0.5),
        ("length_penalty", math.nan),
        ("length_penalty", "1"),
        ("early_stopping", "always"),
        ("ignore_eos", 2),
    ],
)
def test_nonsense_is_refused_by_name(name: str, value: object) -> None:
    options = {"beam_width": 2, "max_tokens": 5, name: value}
    with pytest.raises(RequestError, match=name):
        BeamSearchParams(**options)  # type: ignore[arg-type]
