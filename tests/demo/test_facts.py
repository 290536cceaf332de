"""What the page says of a loaded model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dashinfer_lab.config import Language
from dashinfer_lab.demo.facts import facts
from dashinfer_lab.demo.texts import Texts
from tests.demo.scripted_model import KV_REASON, ScriptedLLM
from tests.demo.test_shelf import CHOICE


@pytest.fixture
def model() -> Iterator[Any]:
    llm = ScriptedLLM(CHOICE)
    yield llm
    llm.close()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_why_keys_and_values_have_their_format_is_said(model: Any, language: Language) -> None:
    said = dict(facts(model, Texts(language)))

    name = Texts(language)("model.kv_cache_dtype")
    assert said[name] == f"fp32 {KV_REASON[language]}"
