"""Where an answer ends: runs of ids, texts that are shown, and a least number of tokens."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashinfer_lab.engine.stop_strings import StopRuns, StopScanner
from dashinfer_lab.engine.text_stream import TextStream
from dashinfer_lab.errors import RequestError
from dashinfer_lab.sampling import SamplingParams
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, LetterDecoder

PROMPT = [5, 17, 3, 88, 41, 0, 2]
IDS = st.lists(st.integers(0, 2), max_size=30)
RUNS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=3)


def letters(token_ids: list[int]) -> str:
    return "".join(chr(ord("A") + i) for i in token_ids)


@given(ids=IDS, runs=RUNS)
def test_ids_pass_up_to_the_run_that_is_complete_first(
    ids: list[int], runs: list[list[int]]
) -> None:
    scanner, passed, found = StopRuns(runs), list[int](), None
    for token_id in ids:
        some, found = scanner.push(token_id)
        passed += some
        if found is not None:
            break
    else:
        passed += scanner.finish()

    ends = (
        (end, max((r for r in runs if ids[:end][-len(r) :] == r), key=len, default=None))
        for end in range(1, len(ids) + 1)
    )
    end, run = next(((e, r) for e, r in ends if r is not None), (len(ids), None))
    assert passed == ids[: end - len(run or ())]
    assert found == (None if run is None else tuple(run))


def test_nothing_of_a_run_is_shown_and_the_run_is_named(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    params = SamplingParams(temperature=0, stop_words_ids=[expected[3:6], [96, 96]])
    handle = make_engine(runner).submit(PROMPT, params)
    events = list(handle)

    assert [event.text for event in events] == [*letters(expected[:3]), "", "", ""]
    assert handle.output.token_ids == expected[:6]
    assert (handle.output.finish_reason, handle.output.stop_reason) == (
        "stop",
        tuple(expected[3:6]),
    )


def test_what_only_began_a_run_is_shown_at_the_end(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 5)
    params = SamplingParams(temperature=0, max_tokens=5, stop_words_ids=[[*expected[3:], 96]])
    output = make_engine(runner).submit(PROMPT, params).completion(timeout=30)

    assert (output.text, output.finish_reason) == (letters(expected), "length")


def test_a_run_ends_an_answer_without_text(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    params = SamplingParams(temperature=0, stop_words_ids=[expected[1:3]])
    output = make_engine(runner, decoder=None).submit(PROMPT, params).completion(timeout=30)

    assert output.token_ids == expected[:3]


def test_a_stop_text_is_shown_where_asked_for_and_nothing_is_held_back(
    make_engine: MakeEngine,
) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    params = SamplingParams(
        temperature=0, stop=letters(expected[3:6]), include_stop_str_in_output=True
    )
    events = list(make_engine(runner).submit(PROMPT, params))

    assert [event.text for event in events] == list(letters(expected[:6]))
    assert events[-1].stop_reason == letters(expected[3:6])


@given(
    text=st.text("abc", max_size=20),
    stop=st.text("abc", min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 20)),
)
def test_an_included_stop_ends_the_text_it_completes(text: str, stop: str, cuts: list[int]) -> None:
    scanner, shown, found = StopScanner([stop], include=True), "", None
    edges = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    for begin, end in itertools.pairwise(edges):
        piece, found = scanner.push(text[begin:end])
        shown += piece
        if found is not None:
            break

    place = text.find(stop)
    assert shown == (text if place < 0 else text[: place + len(stop)])
    assert found == (None if place < 0 else stop)


@pytest.mark.parametrize("min_tokens", [0, 3, 4, 9])
def test_a_stop_text_counts_from_min_tokens_on(make_engine: MakeEngine, min_tokens: int) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 12)
    stops = [letters(expected[2:4]), letters(expected[10:11])]
    params = SamplingParams(temperature=0, max_tokens=12, min_tokens=min_tokens, stop=stops)
    output = make_engine(runner).submit(PROMPT, params).completion(timeout=30)

    # The first text ends with the fourth token: it counts where none of it lies before.
    first = min_tokens <= 2
    assert output.text == letters(expected[:2] if first else expected[:10])
    assert output.stop_reason == stops[0 if first else 1]


def test_detokenize_false_makes_no_text(make_engine: MakeEngine) -> None:
    output = make_engine().submit(PROMPT, SamplingParams(detokenize=False)).completion(timeout=30)

    assert (len(output.token_ids), output.text) == (16, "")
    with pytest.raises(RequestError, match="detokenize=True"):
        SamplingParams(detokenize=False, stop="x")


def test_text_of_ids_held_for_a_run_goes_through_the_scanner_for_texts() -> None:
    stream = TextStream(LetterDecoder(), ["BC"], stop_runs=[[1, 9]])
    shown = [stream.push(token_id) for token_id in (0, 1, 2)]

    assert [text for text, _ in shown] == ["A", "", ""]
    assert shown[-1].stop == "BC"
