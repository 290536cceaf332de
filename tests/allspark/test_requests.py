"""Requests by status, handle and queue: begun, waited for, stopped, released, dropped."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dashinfer_lab.allspark import AsStatus, Engine, GenerateRequestStatus, ResultQueue
from dashinfer_lab.errors import ConfigError, EngineError, RequestError
from tests.allspark.conftest import NAME
from tests.held import held

PROMPT = [1, 7, 9]
GREEDY = {"do_sample": False, "early_stopping": False, "max_length": 20}
LONG = {**GREEDY, "max_length": 128}
ALL_KEYS = {
    "arrival_time",
    "first_token_time",
    "last_token_time",
    "finished_time",
    "time_to_first_token",
    "time_in_queue",
    "context_token_length",
    "generated_token_length",
    "context_cached_length",
    "context_tps",
    "generate_tps",
}


def answer(engine: Engine, inputs: Any, config: dict[str, Any] = GREEDY) -> list[int]:
    status, handle, queue = engine.start_request(NAME, inputs, config)
    assert status is AsStatus.ALLSPARK_SUCCESS
    assert engine.sync_request(NAME, handle) is AsStatus.ALLSPARK_SUCCESS
    element = queue.Get()
    assert element is not None
    return element.ids_from_generate


class Tensor:
    """Offers DLPack and nothing else."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


@pytest.mark.parametrize(
    "inputs",
    [
        PROMPT,
        {"input_ids": [PROMPT]},
        {"input_ids": np.array(PROMPT, np.int32)},
        {"input_ids": np.array([PROMPT]), "attention_mask": np.ones((1, 3), np.int64)},
        {"input_ids": Tensor(np.array([PROMPT]))},
    ],
    ids=["list", "nested", "numpy", "masked", "tensor"],
)
def test_ids_in_any_form_give_the_same_answer(engine: Engine, inputs: Any) -> None:
    assert answer(engine, inputs) == answer(engine, {"input_ids": np.array([PROMPT])})


def test_a_bare_dlpack_capsule_is_taken(engine: Engine) -> None:
    capsule = np.array([PROMPT], np.int64).__dlpack__()

    assert answer(engine, {"input_ids": capsule}) == answer(engine, PROMPT)


def test_new_ids_are_a_dlpack_tensor(engine: Engine) -> None:
    _, handle, queue = engine.start_request(NAME, PROMPT, GREEDY)
    engine.sync_request(NAME, handle)
    element = queue.Get()

    assert element is not None
    tensor = np.from_dlpack(element)
    assert tensor.dtype == np.int64
    assert tensor.tolist() == element.ids_from_generate


@pytest.mark.parametrize("get", ["Get", "GetNoWait", "GetWithTimeout"])
def test_each_way_to_get_loses_and_repeats_nothing(engine: Engine, get: str) -> None:
    expected = answer(engine, PROMPT)
    _, _handle, queue = engine.start_request(NAME, PROMPT, GREEDY)
    found: list[int] = []
    arguments = [1] if get == "GetWithTimeout" else []
    while len(found) < len(expected):
        element = getattr(queue, get)(*arguments)
        found += [] if element is None else element.ids_from_generate

    assert found == expected
    assert queue.Get() is None
    assert queue.GetNoWait() is None
    assert queue.GenerateStatus() is GenerateRequestStatus.GenerateFinished
    assert queue.GeneratedLength() == len(expected)


def test_an_engine_reads_a_queue_as_the_queue_does(engine: Engine) -> None:
    expected = answer(engine, PROMPT)
    _, handle, queue = engine.start_request(NAME, PROMPT, GREEDY)
    engine.sync_request(NAME, handle)
    assert engine.get_request_status(NAME, queue) is GenerateRequestStatus.GenerateFinished
    element = engine.get_no_wait(NAME, queue)

    assert element is not None
    assert element.ids_from_generate == expected
    assert engine.get_wait(NAME, queue) is None


def test_a_request_bears_its_caller_s_name(engine: Engine) -> None:
    config = {**GREEDY, "user_request_id": "mine"}
    handles = [engine.start_request(NAME, PROMPT, config)[1] for _ in range(2)]
    engine.sync_request(NAME, None)

    names = [handle.name for handle in handles if handle is not None]
    assert len(set(names)) == 2
    assert all(name.startswith("mine-") for name in names)


def test_an_end_is_told_with_the_last_token_taken(engine: Engine) -> None:
    _, handle, queue = engine.start_request(NAME, PROMPT, GREEDY)
    while queue.GeneratedLength() < 17:
        threading.Event().wait(0.001)

    assert queue.GenerateStatus() is GenerateRequestStatus.ContextFinished
    engine.sync_request(NAME, handle)
    assert queue.GenerateStatus() is GenerateRequestStatus.GenerateFinished


def test_times_and_counts_come_with_the_end(engine: Engine) -> None:
    _, handle, queue = engine.start_request(NAME, PROMPT, LONG)
    assert set(queue.RequestStatInfo()) == ALL_KEYS
    engine.sync_request(NAME, handle)
    info = queue.RequestStatInfo()

    assert info["context_token_length"] == 3
    assert info["generated_token_length"] == 125
    assert set(info) == ALL_KEYS
    assert all(value is not None and value >= 0 for value in info.values())
    in_order = ["arrival_time", "first_token_time", "last_token_time", "finished_time"]
    times = [info[key] for key in in_order]
    assert times == sorted(times, key=lambda time: time or 0.0)


def test_logprobs_come_for_each_token(engine: Engine) -> None:
    config = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    _, handle, queue = engine.start_request(NAME, PROMPT, config)
    engine.sync_request(NAME, handle)
    element = queue.Get()

    assert element is not None
    assert [top[0][0] for top in element.log_probs_list] == element.ids_from_generate
    assert [top[0][1] for top in element.log_probs_list] == element.token_logprobs_list
    assert {len(top) for top in element.log_probs_list} == {3}


def test_a_stopped_request_keeps_its_tokens(engine: Engine) -> None:
    _, handle, queue = engine.start_request(NAME, PROMPT, LONG)
    first = queue.Get()
    assert first is not None
    assert engine.stop_request(NAME, handle) is AsStatus.ALLSPARK_SUCCESS
    assert engine.stop_request(NAME, handle) is AsStatus.ALLSPARK_SUCCESS
    engine.sync_request(NAME, handle)
    rest = queue.Get()
    taken = first.ids_from_generate + ([] if rest is None else rest.ids_from_generate)

    assert taken == answer(engine, PROMPT, LONG)[: len(taken)]
    assert queue.GenerateStatus() in (
        GenerateRequestStatus.GenerateInterrupted,
        GenerateRequestStatus.GenerateFinished,  # it may have been done before it was stopped
    )


def test_a_released_request_is_known_no_more(engine: Engine) -> None:
    _, handle, _queue = engine.start_request(NAME, PROMPT, GREEDY)
    assert engine.release_request(NAME, handle) is AsStatus.ALLSPARK_SUCCESS

    for call in (engine.sync_request, engine.stop_request, engine.release_request):
        assert call(NAME, handle) is AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID


def test_all_requests_are_waited_for_at_once(engine: Engine) -> None:
    started = [engine.start_request(NAME, [i, 9], GREEDY) for i in range(7)]
    assert engine.sync_request(NAME, None) is AsStatus.ALLSPARK_SUCCESS

    states = {queue.GenerateStatus() for _, _, queue in started}
    assert states == {GenerateRequestStatus.GenerateFinished}


def test_who_drops_handle_and_queue_cancels(engine: Engine) -> None:
    before = engine.get_as_engine_stat(NAME).total_generated_token
    with held(engine._models[NAME].llm.engine):
        started = [engine.start_request(NAME, [i, 9], LONG) for i in range(12)]
        started[0][2].Get()
        started.clear()
        gc.collect()
    answer(engine, PROMPT, {**GREEDY, "max_length": 4})
    stat = engine.get_as_engine_stat(NAME)

    assert (stat.used_span, stat.running_request, stat.pending_request) == (0, 0, 0)
    # A step took one request, or up to four, and the last one drew its only token.
    assert 2 <= stat.total_generated_token - before <= 5


def test_a_queue_alone_keeps_its_request(engine: Engine) -> None:
    queue: ResultQueue = engine.start_request(NAME, PROMPT, GREEDY)[2]
    gc.collect()
    found: list[int] = []
    while (element := queue.Get()) is not None:
        found += element.ids_from_generate

    assert found == answer(engine, PROMPT)


@pytest.mark.parametrize(
    ("inputs", "config", "status"),
    [
        ([], {}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1, 9999], {}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([[1], [2]], {}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1.5], {}, AsStatus.ALLSPARK_PARAM_ERROR),
        ({"input_ids": [1, 2], "attention_mask": [0, 1]}, {}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1], {"temperature": float("nan")}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1], {"user_request_id": 7}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1], {"top_logprobs": 11}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1], {"eos_token_id": np.array([1, 2])}, AsStatus.ALLSPARK_PARAM_ERROR),
        ([1] * 128, {}, AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR),
        pytest.param("hi " * 2000, {}, AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR, id="a long text"),
        ([1] * 8, {"max_length": 8}, AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR),
    ],
)
def test_what_cannot_be_served_says_why_and_the_engine_goes_on(
    engine: Engine, inputs: Any, config: dict[str, Any], status: AsStatus
) -> None:
    found, handle, queue = engine.start_request(NAME, inputs, config)

    assert found is status
    assert engine.release_request(NAME, handle) is AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID
    assert queue.GenerateStatus() is GenerateRequestStatus.InternalError
    for get in (queue.Get, queue.GetNoWait):
        with pytest.raises(RequestError):
            get()
    assert answer(engine, PROMPT)


def test_who_lets_go_of_a_refused_request_ends_no_other(engine: Engine) -> None:
    _, kept, queue = engine.start_request(NAME, PROMPT, GREEDY)
    _, refused, _ = engine.start_request(NAME, [])
    for let_go in (engine.stop_request, engine.release_request):
        assert let_go(NAME, refused) is AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID

    assert engine.sync_request(NAME, kept) is AsStatus.ALLSPARK_SUCCESS
    assert queue.GenerateStatus() is GenerateRequestStatus.GenerateFinished


def test_a_request_may_be_waited_for_by_several_threads(engine: Engine) -> None:
    _, handle, queue = engine.start_request(NAME, PROMPT, GREEDY)
    with ThreadPoolExecutor(3) as pool:
        statuses = list(pool.map(lambda _: engine.sync_request(NAME, None), range(3)))

    assert statuses == [AsStatus.ALLSPARK_SUCCESS] * 3
    element = queue.Get()
    assert element is not None
    assert element.ids_from_generate == answer(engine, PROMPT)
    assert engine.release_request(NAME, handle) is AsStatus.ALLSPARK_SUCCESS


@pytest.mark.parametrize("stranger", [5, "request-0", object], ids=str)
def test_what_is_no_request_or_no_queue_is_told(engine: Engine, stranger: Any) -> None:
    for call in (engine.sync_request, engine.stop_request, engine.release_request):
        assert call(NAME, stranger) is AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID
    for get in (engine.get_wait, engine.get_no_wait, engine.get_request_status):
        with pytest.raises(ConfigError, match="result_queue="):
            get(NAME, stranger)
    _, _, queue = engine.start_request(NAME, PROMPT)
    with pytest.raises(RequestError, match="timeout_ms="):
        queue.GetWithTimeout("soon")  # type: ignore[arg-type]


def test_a_model_that_is_not_there_is_named_with_those_that_are(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="'other'.*loaded: tiny"):
        engine.start_request("other", PROMPT)


@pytest.fixture
def _started_again(engine: Engine) -> Iterator[None]:
    yield
    engine.start_model(NAME)


@pytest.mark.usefixtures("_started_again")
def test_a_stopped_model_takes_requests_once_it_is_started_again(engine: Engine) -> None:
    _, _handle, open_queue = engine.start_request(NAME, PROMPT, LONG)
    engine.stop_model(NAME)
    status, _, queue = engine.start_request(NAME, PROMPT, GREEDY)

    assert status is AsStatus.ALLSPARK_INVALID_CALL_ERROR
    with pytest.raises(EngineError, match="start_model"):
        queue.Get()
    while open_queue.Get() is not None:
        pass
    engine.start_model(NAME)
    assert answer(engine, PROMPT)


def test_a_prompt_that_begins_like_another_shares_its_pages(engine: Engine) -> None:
    prompt = [3, *range(4, 68)]
    before = engine.get_as_engine_stat(NAME)
    expected = answer(engine, prompt, LONG)
    _, handle, queue = engine.start_request(NAME, prompt, LONG)
    engine.sync_request(NAME, handle)
    element = queue.Get()
    stat = engine.get_as_engine_stat(NAME)

    assert element is not None
    assert element.ids_from_generate == expected
    assert element.prefix_cache_len == 64
    assert queue.RequestStatInfo()["context_cached_length"] == 64
    assert stat.prefix_cache_hit_token - before.prefix_cache_hit_token == 64
    assert stat.prefix_cache_hit_rate + stat.prefix_cache_miss_rate == pytest.approx(1)


@pytest.mark.parametrize("number", [1, 10])
@pytest.mark.parametrize("end", ["read", "unread", "released", "dropped"])
def test_every_token_drawn_is_counted_once(engine: Engine, number: int, end: str) -> None:
    before = engine.get_as_engine_stat(NAME).total_generated_token
    config = {**GREEDY, "max_length": len(PROMPT) + number}
    _, handle, queue = engine.start_request(NAME, PROMPT, config)
    while queue.RequestStatInfo()["finished_time"] is None:
        threading.Event().wait(0.001)
    if end == "read":
        assert queue.Get() is not None
    elif end == "released":
        engine.release_request(NAME, handle)
    elif end == "dropped":
        del handle, queue
        gc.collect()
    stats = [engine.get_as_engine_stat(NAME).total_generated_token for _ in range(2)]

    assert stats == [before + number] * 2


def test_the_stat_counts_what_was_done(engine: Engine) -> None:
    before = engine.get_as_engine_stat(NAME)
    answer(engine, PROMPT)
    stat = engine.get_as_engine_stat(NAME)

    assert stat.total_prefill_token - before.total_prefill_token == 3
    assert stat.total_generated_token - before.total_generated_token == 17
    assert stat.free_token == stat.total_token == stat.total_span * stat.span_size
    assert stat.process_token_persec > stat.generate_token_persec > 0
    assert stat.ToMap()["model_name"] == NAME
    assert f"free_span = {stat.free_span}" in stat.ToString()
