from __future__ import annotations

import pytest

from dashinfer_lab.engine import Engine
from dashinfer_lab.errors import RequestError
from dashinfer_lab.outputs import CompletionOutput
from dashinfer_lab.sampling import SamplingParams, SamplingState
from tests.engine.conftest import MakeEngine
from tests.engine.fake_runner import FakeRunner, LetterDecoder

PROMPT = [5, 17, 3, 88, 41, 0, 2]
COMPANY = [[i, i + 1, *range(3 * i)] for i in range(7)]


def generate(engine: Engine, prompt: list[int], **options: object) -> CompletionOutput:
    params = SamplingParams(**options)  # pyright: ignore[reportArgumentType]  # names are checked
    return engine.submit(prompt, params).completion(timeout=30)


def letters(token_ids: list[int]) -> str:
    return "".join(chr(ord("A") + i) for i in token_ids)


def seeded(seed: int, choice: int = 0) -> SamplingState:
    return SamplingState(1.0, 0, 1.0, seed, choice, 0, None)


def test_tokens_text_and_reason_of_a_plain_request(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    output = generate(make_engine(runner), PROMPT, temperature=0, max_tokens=9)

    expected = runner.answer(PROMPT, 9)
    assert output.token_ids == expected
    assert output.text == letters(expected)
    assert (output.finish_reason, output.stop_reason, output.error) == ("length", None, None)


@pytest.mark.parametrize("max_chunk_tokens", [1, 3, 7, 32])
def test_the_answer_does_not_depend_on_how_the_prompt_was_chunked(
    make_engine: MakeEngine, max_chunk_tokens: int
) -> None:
    runner = FakeRunner()
    engine = make_engine(runner, max_chunk_tokens=max_chunk_tokens)
    prompt = list(range(40))

    assert generate(engine, prompt, temperature=0).token_ids == runner.answer(prompt, 16)
    lengths = [len(batch[0].token_ids) for batch in runner.batches]
    assert sum(lengths) == 40 + 15
    assert max(lengths) == min(max_chunk_tokens, 32)


def test_a_request_answers_the_same_alone_and_among_seven_others(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    params = SamplingParams(temperature=1, seed=11, max_tokens=20)
    alone = engine.submit(PROMPT, params).completion(timeout=30)
    handles = [engine.submit(prompt, params) for prompt in [*COMPANY[:4], PROMPT, *COMPANY[4:]]]
    outputs = [handle.completion(timeout=30) for handle in handles]

    assert outputs[4] == alone
    assert alone.token_ids == runner.answer(PROMPT, 20, seeded(11))
    for prompt, output in zip([*COMPANY[:4], PROMPT, *COMPANY[4:]], outputs, strict=True):
        assert output.token_ids == runner.answer(prompt, 20, seeded(11))


def test_without_a_seed_two_requests_differ(make_engine: MakeEngine) -> None:
    engine = make_engine()

    assert generate(engine, PROMPT).token_ids != generate(engine, PROMPT).token_ids


def test_choices_of_one_seed_differ_and_come_again_as_a_set(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    engine = make_engine(runner)
    params = SamplingParams(n=3, seed=1)
    handles = engine.submit_choices(PROMPT, params)
    outputs = [handle.completion(timeout=30) for handle in handles]

    assert [output.index for output in outputs] == [0, 1, 2]
    for choice, output in enumerate(outputs):
        assert output.token_ids == runner.answer(PROMPT, 16, seeded(1, choice))
    assert len({tuple(output.token_ids) for output in outputs}) == 3


def test_each_choice_runs_to_its_own_end(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    drawn = [runner.answer(PROMPT, 16, seeded(1, choice)) for choice in range(3)]
    params = SamplingParams(n=3, seed=1, stop_token_ids=[drawn[1][4]])
    handles = make_engine(runner).submit_choices(PROMPT, params)
    outputs = [handle.completion(timeout=30) for handle in handles]

    assert outputs[1].token_ids == drawn[1][:5]
    for output, expected in zip(outputs, drawn, strict=True):
        stopped = drawn[1][4] in expected
        assert output.finish_reason == ("stop" if stopped else "length")
        assert output.token_ids == expected[: len(output.token_ids)]
        assert stopped or len(output.token_ids) == 16


def test_several_choices_are_not_one_handle(make_engine: MakeEngine) -> None:
    with pytest.raises(RequestError, match="n=3"):
        make_engine().submit(PROMPT, SamplingParams(n=3))


def test_a_very_cold_temperature_is_arg_max(make_engine: MakeEngine) -> None:
    runner = FakeRunner()

    assert generate(make_engine(runner), PROMPT, temperature=1e-30).token_ids == runner.answer(
        PROMPT, 16
    )


def test_an_end_id_ends_and_is_counted_but_not_shown(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    output = generate(make_engine(runner, eos_ids={expected[3], 96}), PROMPT, temperature=0)

    assert output.token_ids == expected[:4]
    assert output.text == letters(expected[:3])
    assert (output.finish_reason, output.stop_reason) == ("stop", None)


def test_ignore_eos_goes_on_past_every_end_id(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    engine = make_engine(runner, eos_ids=set(expected))
    output = generate(engine, PROMPT, temperature=0, ignore_eos=True)

    assert output.token_ids == expected
    assert output.text == letters(expected)
    assert output.finish_reason == "length"


def test_a_stop_id_ends_also_where_eos_is_ignored_and_is_named(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    output = generate(
        make_engine(runner), PROMPT, temperature=0, ignore_eos=True, stop_token_ids=[expected[2]]
    )

    assert output.token_ids == expected[:3]
    assert output.text == letters(expected[:2])
    assert (output.finish_reason, output.stop_reason) == ("stop", expected[2])


def test_nothing_of_a_stop_text_is_streamed_though_tokens_split_it(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    stop = letters(expected[3:8])
    handle = make_engine(runner).submit(PROMPT, SamplingParams(temperature=0, stop=stop))
    events = list(handle)

    assert [event.text for event in events] == [*letters(expected[:3]), "", "", "", "", ""]
    assert [event.token_id for event in events] == expected[:8]
    assert (events[-1].finish_reason, events[-1].stop_reason) == ("stop", stop)


def test_text_held_back_for_a_stop_comes_with_the_last_token(make_engine: MakeEngine) -> None:
    runner = FakeRunner()
    expected = runner.answer(PROMPT, 5)
    stop = letters(expected[3:5]) + "\0"
    output = generate(make_engine(runner), PROMPT, temperature=0, max_tokens=5, stop=[stop])

    assert output.text == letters(expected)
    assert output.finish_reason == "length"


def test_what_the_decoder_holds_comes_before_an_end_id(make_engine: MakeEngine) -> None:
    class Lagging(LetterDecoder):
        def __init__(self, *, skip_special_tokens: bool) -> None:
            super().__init__(skip_special_tokens=skip_special_tokens, hold=2)

    runner = FakeRunner()
    expected = runner.answer(PROMPT, 6)
    engine = make_engine(runner, eos_ids={expected[5]}, decoder=Lagging)

    assert generate(engine, PROMPT, temperature=0).text == letters(expected[:5])


def test_skip_special_tokens_reaches_the_decoder(make_engine: MakeEngine) -> None:
    seen: list[bool] = []

    class Listening(LetterDecoder):
        def __init__(self, *, skip_special_tokens: bool) -> None:
            super().__init__()
            seen.append(skip_special_tokens)

    engine = make_engine(decoder=Listening)
    generate(engine, PROMPT, skip_special_tokens=False)
    generate(engine, PROMPT)

    assert seen == [False, True]


@pytest.mark.parametrize(
    "error", [ValueError("no such token"), SystemExit(1)], ids=["error", "exit"]
)
def test_a_decoder_that_raises_ends_its_request_only(
    make_engine: MakeEngine, error: BaseException
) -> None:
    class Fragile(LetterDecoder):
        def push(self, token_id: int, /) -> str:
            if token_id == bad:
                raise error
            return super().push(token_id)

    runner = FakeRunner()
    expected = runner.answer(PROMPT, 16)
    bad = expected[4]
    engine = make_engine(runner, decoder=Fragile)
    output = generate(engine, PROMPT, temperature=0)

    assert output.finish_reason == "error"
    assert f"token {bad}" in str(output.error)
    assert output.token_ids == expected[:5]
    assert generate(engine, [1], temperature=0, max_tokens=1).finish_reason == "length"


def test_without_a_decoder_there_are_tokens_but_no_text(make_engine: MakeEngine) -> None:
    engine = make_engine(decoder=None)
    output = generate(engine, PROMPT)

    assert (len(output.token_ids), output.text) == (16, "")
    with pytest.raises(RequestError, match="need a tokenizer"):
        engine.submit(PROMPT, SamplingParams(stop="x"))


def test_logprobs_have_one_entry_per_token(make_engine: MakeEngine) -> None:
    output = generate(make_engine(), PROMPT, max_tokens=7, logprobs=2)

    assert output.logprobs is not None
    assert [token in entry for token, entry in zip(output.token_ids, output.logprobs, strict=True)]
    assert all(2 <= len(entry) <= 3 for entry in output.logprobs)
    drawn = [entry[t].logprob for t, entry in zip(output.token_ids, output.logprobs, strict=True)]
    assert output.cumulative_logprob == pytest.approx(sum(drawn))


def test_logprobs_not_asked_for_are_none(make_engine: MakeEngine) -> None:
    output = generate(make_engine(), PROMPT)

    assert (output.logprobs, output.cumulative_logprob) == (None, None)


def test_no_limit_takes_the_rest_of_the_context_to_its_last_place(make_engine: MakeEngine) -> None:
    runner = FakeRunner(context_length=31)
    output = generate(make_engine(runner), PROMPT, temperature=0, max_tokens=None)

    assert len(output.token_ids) == 31 - len(PROMPT)
    assert output.finish_reason == "length"


def test_no_limit_in_a_cache_smaller_than_the_context_fills_the_cache(
    make_engine: MakeEngine,
) -> None:
    runner = FakeRunner(num_pages=3)
    output = generate(make_engine(runner), PROMPT, temperature=0, max_tokens=None)

    assert output.token_ids == runner.answer(PROMPT, 12 + 1 - len(PROMPT))
    assert output.finish_reason == "length"
