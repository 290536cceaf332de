"""generation_config.json: request, then the file, then ours; nonsense is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import CheckpointError
from tests.hub.tiny_models import write_safetensors

PROMPT = {"prompt_token_ids": [1, 7, 9]}


@pytest.fixture(autouse=True)
def _own_conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))


def _loaded(directory: Path, **stated: Any) -> LLM:
    write_safetensors(directory)
    (directory / "generation_config.json").write_text(json.dumps(stated))
    return LLM(directory, weights="fp32", threads=1)


def test_what_the_file_states_is_taken_where_a_call_says_nothing(tmp_path: Path) -> None:
    # top_k 1 leaves one token, whatever the seed: the answer is the greedy one.
    stated = {"temperature": 1.7, "top_k": 1, "do_sample": True, "max_length": 3}
    with _loaded(tmp_path / "model", **stated) as llm:
        greedy = SamplingParams(temperature=0)
        assert llm.default_sampling_params == SamplingParams(temperature=1.7, top_k=1)
        assert llm.sampling_defaults == {"temperature": 1.7, "top_k": 1}
        expected = llm.generate(PROMPT, greedy)[0].outputs[0].token_ids
        answers = [llm.generate(PROMPT)[0].outputs[0].token_ids for _ in range(3)]
        endless = llm.submit(PROMPT)
        endless.cancel()

    assert answers == [expected] * 3


def test_a_request_of_its_own_is_not_overridden(tmp_path: Path) -> None:
    with _loaded(tmp_path / "model", top_k=1) as llm:
        drawn = SamplingParams(temperature=5, max_tokens=12)
        answers = [llm.generate(PROMPT, drawn)[0].outputs[0].token_ids for _ in range(4)]

    # 291 tokens, nearly alike at this temperature: 4 equal answers of 12 do not happen by chance.
    assert len({tuple(ids) for ids in answers}) > 1


def test_a_handle_without_parameters_may_take_the_rest_of_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    with _loaded(tmp_path) as llm:
        submit = llm.engine.submit

        def noted(ids: Any, params: SamplingParams, **options: Any) -> Any:
            asked.append(params.max_tokens)
            return submit(ids, params, **options)

        monkeypatch.setattr(llm.engine, "submit", noted)
        llm.submit(PROMPT).cancel()
        llm.submit(PROMPT, SamplingParams()).cancel()

    assert asked == [None, 16]


def test_without_the_file_the_defaults_are_ours(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model")
    with LLM(tmp_path / "model", weights="fp32", threads=1) as llm:
        assert llm.default_sampling_params == SamplingParams()


@pytest.mark.parametrize(
    "stated", [{"temperature": "hot"}, {"top_p": -1}, {"top_k": 1.5}, {"repetition_penalty": []}]
)
def test_nonsense_in_the_file_is_refused_by_name(tmp_path: Path, stated: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=f"generation_config.json: {next(iter(stated))}="):
        _loaded(tmp_path / "model", **stated)
