"""A tiny model with a tokenizer, and an engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashinfer_lab import allspark
from tests.hub.tiny_models import write_gguf

NAME = "tiny"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("allspark") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[allspark.Engine]:
    with allspark.Engine() as engine:
        config = allspark.AsModelConfig(
            model_name=NAME, model_path=str(tiny), num_threads=1, engine_max_batch=4
        )
        assert engine.build_model_from_config_struct(config) is allspark.AsStatus.ALLSPARK_SUCCESS
        assert engine.start_model(NAME) is allspark.AsStatus.ALLSPARK_SUCCESS
        yield engine
