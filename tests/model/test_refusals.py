"""What the façade is given and cannot use is refused by name, and it goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dashinfer_lab import LLM, BeamSearchParams, SamplingParams
from dashinfer_lab.engine import EngineOptions, RequestOptions
from dashinfer_lab.errors import ConfigError, HubError, RequestError
from tests.hub.tiny_models import CONFIG, write_gguf, write_safetensors

GREEDY = SamplingParams(temperature=0, max_tokens=2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("refusals") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, weights="fp32", threads=1) as llm:
        yield llm


def _works(llm: LLM) -> bool:
    return len(llm.generate("hello", GREEDY)[0].outputs[0].token_ids) > 0


@pytest.mark.parametrize(
    "prompts",
    [
        None,
        5,
        b"hi",
        True,
        [None],
        [1, 2, 3],
        [[1, 2]],
        {},
        {1: 2, "a": 3},
        {"prompt": None},
        {"prompt_token_ids": None},
        {"prompt_token_ids": 5},
        {"prompt_token_ids": [True]},
        {"prompt": "hello", "multi_modal_data": {"image": b""}},
        {"prompt": "hello", "cache_slat": "mine"},
        ["hello", None],
    ],
    ids=repr,
)
def test_what_is_no_prompt_is_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError):
        llm.generate(prompts, GREEDY)
    if isinstance(prompts, dict):
        with pytest.raises(RequestError):
            llm.submit(prompts, GREEDY)
    assert _works(llm)


def test_a_key_of_a_prompt_that_is_none_asks_for_nothing(llm: LLM) -> None:
    prompt = {"prompt": "hello", "multi_modal_data": None}

    assert llm.submit(prompt, GREEDY).completion().token_ids


def test_the_salt_of_a_prompt_holds_wherever_a_prompt_is_taken(llm: LLM) -> None:
    ids = list(range(2, 42))
    salted = {"prompt_token_ids": ids, "cache_salt": "mine"}
    beams = BeamSearchParams(beam_width=1, max_tokens=1)

    def num_found(ask: Callable[[Any], object], prompt: Any) -> int:
        before = llm.engine.stats().num_cached_tokens
        ask(prompt)
        return llm.engine.stats().num_cached_tokens - before

    def submit(prompt: Any) -> object:
        return llm.submit(prompt, GREEDY).completion()

    asks = [submit, lambda p: llm.generate(p, GREEDY), lambda p: llm.beam_search(p, beams)]
    submit({"prompt_token_ids": ids})
    assert [num_found(ask, salted) for ask in asks] == [0, 32, 32]
    assert [num_found(ask, {**salted, "cache_salt": "other"}) for ask in asks[::-1]] == [0, 32, 32]
    with pytest.raises(RequestError, match="cache_salt='mine'.*contradicts 'yours'"):
        llm.submit(salted, GREEDY, options=RequestOptions(cache_salt="yours"))


@pytest.mark.parametrize("call", ["generate", "chat", "stream", "submit"])
def test_an_option_of_sampling_says_where_it_belongs(llm: LLM, call: str) -> None:
    with pytest.raises(RequestError, match=rf"{call} has no .*SamplingParams\(max_tokens=9\)"):
        getattr(llm, call)("hello", max_tokens=9)
    with pytest.raises(RequestError, match=f"{call} has no option lora_request: leave"):
        getattr(llm, call)("hello", lora_request="mine")
    assert _works(llm)


@pytest.mark.parametrize("long", ["hello " * 200_000, "\u4f60" * 400_000], ids=["latin", "han"])
def test_a_text_far_too_long_is_refused_by_its_head(
    llm: LLM, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert llm.tokenizer is not None
    encoded: list[int] = []

    def counted(text: str, *, add_special_tokens: bool = True) -> list[int]:
        encoded.append(len(text))
        return encode(text, add_special_tokens=add_special_tokens)

    encode = llm.tokenizer.encode
    monkeypatch.setattr(llm.tokenizer, "encode", counted)
    messages = [{"role": "user", "content": long}]
    with pytest.raises(RequestError, match=rf"{len(long)} characters is too long.*shorten it"):
        llm.generate(["hello", long], GREEDY)
    with pytest.raises(RequestError, match=f"{len(long)} characters"):
        llm.chat(messages, GREEDY)
    with pytest.raises(RequestError, match=f"{len(long)} characters"):
        llm.submit(long, GREEDY)
    with pytest.raises(RequestError, match=f"{len(long)} characters"):
        llm.beam_search(long, BeamSearchParams(beam_width=1, max_tokens=1))

    assert max(encoded) <= 8 * llm.config.context_length
    assert _works(llm)


def test_a_long_text_is_encoded_whole_where_it_is_to_be_cut_or_only_encoded(llm: LLM) -> None:
    long = "hello " * 2000
    cut = replace(GREEDY, truncate_prompt_tokens=5)

    assert llm.tokenizer is not None
    ids = llm.tokenizer.encode(long)
    assert llm.token_ids(long) == ids
    assert llm.generate(long, cut)[0].prompt_token_ids == ids[-5:]


def test_an_empty_text_is_what_begins_a_text_and_no_ids_are_refused(llm: LLM) -> None:
    assert llm.tokenizer is not None
    empty, other = llm.generate(["", "hello"], GREEDY)

    assert empty.prompt_token_ids == [llm.tokenizer.bos_id]
    assert len(other.outputs[0].token_ids) == 2
    with pytest.raises(RequestError, match="the prompt is empty: give at least one token"):
        llm.generate([{"prompt_token_ids": []}, "hello"], GREEDY)
    assert _works(llm)


def test_no_prompts_have_no_outputs(llm: LLM) -> None:
    assert llm.generate([], GREEDY) == []


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, 0, 5, "greedy", [None]], ids=repr)
def test_what_are_no_sampling_params_is_refused(llm: LLM, params: Any) -> None:
    with pytest.raises(RequestError, match="sampling_params="):
        llm.generate(["hello"], params)
    with pytest.raises(RequestError, match="sampling_params="):
        llm.chat([{"role": "user", "content": "hello"}], params)
    with pytest.raises(RequestError, match="sampling_params="):
        llm.stream("hello", params)
    assert _works(llm)


@pytest.mark.parametrize(
    "messages",
    [
        None,
        5,
        "hello",
        ["hello"],
        {"role": "user", "content": "hello"},
        [[]],
        pytest.param(
            (message for message in [{"role": "user", "content": "hello"}]), id="generator"
        ),
    ],
    ids=repr,
)
def test_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match="messages|message 0|conversation"):
        llm.chat(messages, GREEDY)
    assert _works(llm)


@pytest.mark.parametrize("messages", [5, None, "hello", [None], ["hello"], [["a", "b"]]], ids=repr)
def test_a_session_of_what_is_no_conversation_is_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises(RequestError, match="messages="):
        llm.session(messages)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chat_template", 5),
        ("chat_template_kwargs", 5),
        ("chat_template_kwargs", {1: 2}),
        ("chat_template_kwargs", {"messages": []}),
    ],
)
def test_options_of_a_chat_without_sense_are_refused(llm: LLM, name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name):
        llm.chat([{"role": "user", "content": "hello"}], GREEDY, **{name: value})
    assert _works(llm)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("weights", None, "None is unknown"),
        ("weights", 8, "8 is unknown"),
        ("threads", 0, "threads=0"),
        ("threads", True, "threads=True"),
        ("threads", 1025, "threads=1025 exceeds the 1024"),
        ("max_batch_tokens", None, "max_batch_tokens=None"),
        ("kv_cache_bytes", 1, "less than one page"),
        ("kv_cache_bytes", 1 << 60, "of memory: lower it"),
        ("kv_cache_bytes", 10**40, "of memory: lower it"),
        ("context_length", 129, "exceeds the 128 positions"),
        ("engine", 5, "engine=5 is not possible: give EngineOptions"),
        ("engine", {"max_running": 2}, "engine=.* is not possible"),
        ("progress", 5, "progress=5 is not possible"),
        ("progress", None, "progress=None is not possible"),
        ("kv_cache_dtype", [], "kv_cache_dtype=\\[\\] is not supported"),
        ("chaos_seed", "x", "chaos_seed='x'"),
    ],
)
def test_an_impossible_size_is_refused_by_name(
    path: Path, option: str, value: Any, said: str
) -> None:
    options: dict[str, Any] = {"weights": "fp32", option: value}

    with pytest.raises(ConfigError, match=said):
        LLM(path, **options)


@pytest.mark.parametrize(
    "model", [None, 5, {}, [], b"model", pytest.param(object(), id="object"), LLM], ids=repr
)
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(HubError, match="is no model: give the directory of a checkpoint"):
        LLM(model)


def test_options_that_do_not_fit_the_model_leave_no_thread(path: Path) -> None:
    before = psutil.Process().num_threads()

    with pytest.raises(ConfigError, match="max_running=1000 exceeds") as caught:
        LLM(path, weights="fp32", threads=3, engine=EngineOptions(max_running=1000))
    assert psutil.Process().num_threads() == before
    del caught  # held until here: a notebook keeps the last error, and with it the frames


def test_nothing_that_a_config_names_is_imported_or_run(tmp_path: Path) -> None:
    code = "raise SystemExit('the model ran its own code')"
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil"):
        (tmp_path / f"{name}.py").write_text(code)
    remote = {
        "AutoConfig": "configuration_evil.Config",
        "AutoModelForCausalLM": "modeling_evil.Model",
        "AutoTokenizer": ["tokenization_evil.Tokenizer", None],
    }
    attributes = {"auto_map": remote, "_attn_implementation": "evil/kernel"}
    attributes |= {"tokenizer_class": "modeling_evil.Model", "trust_remote_code": True}
    write_safetensors(tmp_path, config={**CONFIG, **attributes})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(attributes))

    with LLM(tmp_path, weights="fp32", threads=1) as llm:
        answer = llm.generate({"prompt_token_ids": [1, 2]}, GREEDY)[0].outputs[0].token_ids

    assert len(answer) > 0
    assert not any(name.endswith("_evil") for name in sys.modules)
