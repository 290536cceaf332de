"""A tiny model behind a hub on a loopback port, and ModelScope's client pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub.loopback_hub import MODEL, LoopbackHub, serving
from tests.hub.tiny_models import write_safetensors


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of a tiny model, and some that a model does not need."""
    directory = tmp_path_factory.mktemp("checkpoint")
    write_safetensors(directory)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    files["README.md"] = b"---\nlicense: mit\n---\n"
    unwanted = ("pytorch_model.bin", "modeling_tiny.py", "onnx/model.onnx", "model.onnx_data")
    return files | dict.fromkeys(unwanted, b"unwanted")


@pytest.fixture
def hub(
    checkpoint: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LoopbackHub]:
    from modelscope_hub import _download, _legacy_api

    monkeypatch.setattr(_download, "DOWNLOAD_INTEGRITY_RETRY_BACKOFF", 0.0)
    monkeypatch.setattr(_legacy_api, "REPO_TREE_PAGE_RETRY_MAX_DELAY_SECONDS", 0.0)
    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MODELSCOPE_API_TOKEN", raising=False)
    with serving({(MODEL, "master"): dict(checkpoint)}) as hub:
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", hub.url)
        yield hub
