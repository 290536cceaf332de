"""Sessions on a fake model whose tokens are letters: messages are prompts, joined by a mark."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.engine import Engine, EngineOptions, RequestHandle
from dashinfer_lab.errors import NonFiniteError, RequestError
from dashinfer_lab.prompts import Message
from dashinfer_lab.session import Session
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, Gate

GREEDY = SamplingParams(temperature=0, max_tokens=9)


def ids_of(messages: Sequence[Message]) -> list[int]:
    """A letter a token; 96 ends a message."""
    return [token for message in messages for token in [*map(_token, message["content"]), 96]]


def _token(letter: str) -> int:
    return ord(letter) - ord("A")


def text_of(token_ids: Sequence[int]) -> str:
    return "".join(chr(ord("A") + token) for token in token_ids)


def session_on(engine: Engine) -> Session:
    def submit(messages: Sequence[Message], params: SamplingParams | None) -> RequestHandle:
        return engine.submit(ids_of(messages), params or GREEDY)

    return Session(submit)


def test_a_turn_is_answered_from_all_that_was_said(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    session = session_on(make_engine(runner))
    first = session.send("HELLO").text
    second = session.send("AGAIN").text

    assert first == text_of(runner.answer(ids_of([{"content": "HELLO"}]), 9))
    said = [{"content": text} for text in ("HELLO", first, "AGAIN")]
    assert second == text_of(runner.answer(ids_of(said), 9))
    assert [message["role"] for message in session.messages] == ["user", "assistant"] * 2
    assert [message["content"] for message in session.messages] == ["HELLO", first, "AGAIN", second]


def test_the_next_turn_computes_only_what_is_new(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    session = session_on(engine)
    session.send("ABCDEFGHIJ")
    before = engine.stats()
    session.send("K")
    after = engine.stats()

    # 11 of the prompt and 9 drawn, of which the last was not computed: 4 full pages of 5.
    assert after.num_cached_tokens - before.num_cached_tokens == 16
    assert after.num_prefill_tokens - before.num_prefill_tokens == 23 - 16


def test_a_turn_that_adds_no_token_goes_on_from_all_that_is_known(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)

    def submit(messages: Sequence[Message], params: SamplingParams | None) -> RequestHandle:
        said = [_token(letter) for message in messages for letter in message["content"]]
        return engine.submit(said, GREEDY)

    session = Session(submit)
    first = [_token(letter) for letter in session.send("HELLO").text]
    known = [*map(_token, "HELLO"), *first]

    assert session.send("").text == text_of(runner.answer(known, 9))
    assert engine.submit(known, GREEDY).completion().token_ids == runner.answer(known, 9)


def test_a_stream_gives_what_is_kept(make_engine: MakeEngine) -> None:
    session = session_on(make_engine())
    deltas = list(session.stream("HELLO"))

    assert session.messages[-1]["content"] == "".join(deltas)
    assert len("".join(deltas)) == 9
    assert not session.answering


def test_an_abandoned_loop_keeps_what_it_gave(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    session = session_on(engine)
    given: list[str] = []
    for delta in session.stream("HELLO", SamplingParams(temperature=0, max_tokens=60)):
        given.append(delta)
        if len(given) == 3:
            break

    assert session.messages[-1]["content"] == "".join(given)
    assert not session.answering
    following = session.send("MORE").text
    said = [{"content": text} for text in ("HELLO", "".join(given), "MORE")]
    assert following == text_of(runner.answer(ids_of(said), 9))


def test_a_stop_from_another_thread_keeps_what_came(make_engine: MakeEngine) -> None:
    gate = Gate()
    runner = FakeRunner(before_step=gate)
    session = session_on(make_engine(runner))
    stream = session.stream("HELLO", SamplingParams(temperature=0, max_tokens=60))
    gate.let_through()
    gate.let_through()
    given = [next(stream), next(stream)]
    stopper = threading.Thread(target=session.stop)
    stopper.start()
    stopper.join()
    gate.open()
    given += stream

    assert 2 <= len("".join(given)) < 60
    assert session.messages[-1]["content"] == "".join(given)
    session.stop()
    session.stop()


def test_only_one_turn_runs_at_a_time(make_engine: MakeEngine) -> None:
    session = session_on(make_engine())
    stream = session.stream("HELLO", SamplingParams(temperature=0, max_tokens=60))
    next(stream)
    with pytest.raises(RequestError, match="is answering: stop it"):
        session.send("NOW")
    session.stop()
    for _ in stream:
        pass

    assert session.send("NOW").finish_reason == "length"


def test_a_stream_that_is_never_begun_holds_nothing_up(make_engine: MakeEngine) -> None:
    session = session_on(make_engine())
    session.stream("HELLO")

    assert session.send("HELLO").finish_reason == "length"


def test_a_full_context_is_told_and_leaves_the_messages(make_engine: MakeEngine) -> None:
    session = session_on(make_engine(FakeRunner(context_length=40)))
    session.send("HELLO")
    before = session.messages
    with pytest.raises(RequestError, match="exceed the context of 40"):
        session.send("A" * 30)

    assert session.messages == before
    assert session.send("B").finish_reason == "length"


def test_a_turn_that_failed_leaves_no_trace(make_engine: MakeEngine) -> None:
    session = session_on(make_engine(FakeRunner(poison=_token("X"))))
    session.send("HELLO")
    before = session.messages
    with pytest.raises(NonFiniteError):
        session.send("X")
    with pytest.raises(NonFiniteError):
        list(session.stream("X"))

    assert session.messages == before
    assert session.send("Y").finish_reason == "length"


def test_a_fork_goes_its_own_way_on_the_same_pages(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    session = session_on(engine)
    first = session.send("HELLO").text
    fork = session.fork()
    answers = [each.send(word).text for each, word in ((session, "LEFT"), (fork, "RIGHT"))]

    for answer, word in zip(answers, ("LEFT", "RIGHT"), strict=True):
        said = [{"content": text} for text in ("HELLO", first, word)]
        assert answer == text_of(runner.answer(ids_of(said), 9))
    assert [len(each.messages) for each in (session, fork)] == [4, 4]
    assert engine.stats().num_prefix_hits == 2


def test_after_the_end_nothing_is_said_but_all_is_readable(make_engine: MakeEngine) -> None:
    with session_on(make_engine()) as session:
        session.send("HELLO")
    session.end()

    assert session.ended
    assert len(session.messages) == 2
    for refused in (lambda: session.send("A"), lambda: list(session.stream("A")), session.fork):
        with pytest.raises(RequestError, match="has ended"):
            refused()
    assert repr(session) == "<Session ended: 2 messages>"


def test_an_end_in_mid_answer_stops_it(make_engine: MakeEngine) -> None:
    session = session_on(make_engine())
    stream = session.stream("HELLO", SamplingParams(temperature=0, max_tokens=60))
    given = [next(stream)]
    session.end()
    given += stream

    assert session.messages[-1]["content"] == "".join(given)


@pytest.mark.model
def test_turns_of_a_model_are_those_of_whole_conversations(embedded_gguf: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=12)
    questions = ["Name three colours of autumn leaves.", "And one more?"]
    with LLM(embedded_gguf, weights="a16w8", threads=2) as llm:
        session = llm.session()
        answers = [session.send(question, params).text for question in questions]
        known = llm.engine.stats().num_cached_tokens
    options = EngineOptions(enable_prefix_caching=False)
    with LLM(embedded_gguf, weights="a16w8", threads=2, engine=options) as llm:
        said: list[dict[str, str]] = []
        for question, answer in zip(questions, answers, strict=True):
            said.append({"role": "user", "content": question})
            assert llm.chat(said, params)[0].outputs[0].text == answer
            said.append({"role": "assistant", "content": answer})

    assert known >= 32
