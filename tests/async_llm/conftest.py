"""A tiny model behind the asynchronous names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashinfer_lab import AsyncLLM
from tests.hub.tiny_models import write_gguf


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("async") / "tiny.gguf"
    # So long that no answer ends before it is left.
    write_gguf(path, context_length=8192)
    return path


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[AsyncLLM]:
    with AsyncLLM(tiny, weights="fp32", threads=1, max_num_seqs=4) as engine:
        yield engine
