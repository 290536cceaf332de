"""The embedded model, converted once under each scheme the tests here ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashinfer_lab.convert import Artifact, convert
from dashinfer_lab.hub import open_checkpoint


@pytest.fixture(scope="session")
def fp32_artifact(embedded_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return _converted(embedded_gguf, tmp_path_factory, "fp32")


@pytest.fixture(scope="session")
def a16w8_artifact(embedded_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return _converted(embedded_gguf, tmp_path_factory, "a16w8")


def _converted(gguf: Path, tmp_path_factory: pytest.TempPathFactory, scheme: str) -> Artifact:
    checkpoint = open_checkpoint(gguf)
    try:
        return convert(checkpoint, tmp_path_factory.mktemp("model") / scheme, scheme)
    finally:
        checkpoint.close()
