"""vLLM's options of a chat reach the prompt; a template may be given with the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.errors import TokenizerError
from tests.hub import test_tiktoken_files as tiktoken_files
from tests.hub.tiny_models import write_gguf
from tests.model.family_cases import CASES

GREEDY = SamplingParams(temperature=0, max_tokens=1)
HI = [{"role": "user", "content": "hi"}]
TEMPLATE = (
    "{{ messages[-1].content }}{{ mark }}{% for tool in tools or [] %}{{ tool.name }}{% endfor %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat") / "tiny.gguf"
    write_gguf(path)
    return path


def prompt(llm: LLM, **options: object) -> str:
    assert llm.tokenizer is not None
    (output,) = llm.chat(HI, GREEDY, **options)  # pyright: ignore[reportArgumentType]
    return llm.tokenizer.decode(output.prompt_token_ids)


def test_the_options_of_a_chat_are_vllm_s(model: Path) -> None:
    with LLM(model, weights="fp32", threads=1) as llm:
        assert prompt(llm) == "user: hiassistant:"
        assert prompt(llm, add_generation_prompt=False) == "user: hi"
        assert prompt(llm, chat_template=TEMPLATE, chat_template_kwargs={"mark": "!"}) == "hi!"
        assert prompt(llm, chat_template=TEMPLATE, tools=[{"name": "f"}]) == "hif"


def test_a_template_given_with_the_model_is_that_of_every_chat(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(TEMPLATE, encoding="utf-8")
    with LLM(model, weights="fp32", threads=1, chat_template=path) as llm:
        assert prompt(llm) == "hi"


def test_glm_4_as_published_chats_by_its_own_table_and_format(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "chatglm")
    source = case.write(tmp_path)
    tiktoken_files.write(source, "tokenizer.model", tiktoken_files.TABLE)
    with LLM(source, weights="fp32", threads=1) as llm:
        assert llm.tokenizer is not None
        assert llm.tokenizer.built_in_format == "GLM-4's roles"
        (output,) = llm.chat(HI, SamplingParams(temperature=0, max_tokens=3))

        assert output.prompt_token_ids[:3] == [278, 280, 283]  # [gMASK] <sop> <|user|>
        assert output.prompt_token_ids[-1] == 284
        assert output.outputs[0].text == llm.tokenizer.decode(output.outputs[0].token_ids)


def test_a_template_that_is_not_there_is_named(model: Path) -> None:
    with pytest.raises(TokenizerError, match=r"absent\.jinja cannot be read"):
        LLM(model, weights="fp32", threads=1, chat_template="absent.jinja")
