from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dashinfer_lab.engine.stop_strings import StopScanner
from dashinfer_lab.engine.text_stream import TextStream
from tests.engine.fake_runner import LetterDecoder

LETTERS = st.text("abc", max_size=30)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3)


def feed(scanner: StopScanner, pieces: list[str]) -> tuple[list[str], str | None]:
    shown: list[str] = []
    for piece in pieces:
        text, stop = scanner.push(piece)
        shown.append(text)
        if stop is not None:
            return shown, stop
    return [*shown, scanner.finish()], None


def oracle(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Read letter by letter: the first text that is complete ends it, of several the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_nothing_of_a_stop_split_over_pieces_is_shown() -> None:
    shown, stop = feed(StopScanner(["DEFGHIJ"]), ["ABC", "DE", "F", "GHI", "JKL"])

    assert shown == ["ABC", "", "", "", ""]
    assert stop == "DEFGHIJ"


def test_what_only_looked_like_a_stop_comes_with_the_text_that_refutes_it() -> None:
    shown, stop = feed(StopScanner(["DEFG"]), ["xD", "E", "F", "y", "D"])

    assert shown == ["x", "", "", "DEFy", "", "D"]
    assert stop is None


def test_a_stop_that_begins_inside_a_failed_one_is_found() -> None:
    assert feed(StopScanner(["aab"]), ["a", "a", "a", "b"]) == (["", "", "a", ""], "aab")


def test_the_stop_complete_first_wins_though_another_began_before() -> None:
    assert feed(StopScanner(["bcd", "c"]), ["ab", "cd"]) == (["a", "b"], "c")


@example(text="cab", stops=["b", "ab"], cuts=[])
@given(text=LETTERS, stops=STOPS, cuts=st.lists(st.integers(0, 30)))
def test_the_outcome_does_not_depend_on_how_the_text_was_cut(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    edges = [0, *sorted(c for c in cuts if c < len(text)), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    shown, stop = feed(StopScanner(stops), pieces)

    assert ("".join(shown), stop) == oracle(text, stops)


@given(text=LETTERS, stops=STOPS)
def test_no_more_is_held_back_than_could_begin_a_stop(text: str, stops: list[str]) -> None:
    scanner = StopScanner(stops)
    shown = ""
    for end in range(1, len(text) + 1):
        piece, stop = scanner.push(text[end - 1])
        if stop is not None:
            return
        shown += piece
        held = text[len(shown) : end]
        begins = [s[:n] for s in stops for n in range(len(s))]
        assert held == max((b for b in begins if text[:end].endswith(b)), key=len)


@pytest.mark.parametrize("hold", [0, 1, 3])
def test_a_text_stream_flushes_once_what_decoder_and_scanner_hold(hold: int) -> None:
    stream = TextStream(LetterDecoder(hold=hold), ["CDX"])
    shown = "".join(stream.push(i).text for i in range(4))

    assert shown + stream.finish().text == "ABCD"
    assert stream.finish() == ("", None)


def test_a_decoder_is_finished_once() -> None:
    class Careless(LetterDecoder):
        def finish(self) -> str:
            return "!"

    stream = TextStream(Careless(), [])

    assert [stream.finish().text, stream.finish().text] == ["!", ""]


def test_a_stop_completed_by_what_the_decoder_held_is_found_at_the_end() -> None:
    stream = TextStream(LetterDecoder(hold=3), ["CD"])
    shown = "".join(stream.push(i).text for i in range(4))

    assert (shown, stream.finish()) == ("A", ("B", "CD"))
