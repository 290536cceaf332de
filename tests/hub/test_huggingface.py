"""huggingface_hub's real client against a hub on a loopback port, in a process of its own.

The library reads HF_ENDPOINT when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dashinfer_lab.errors import HubError
from dashinfer_lab.hub import open_checkpoint, resolve
from dashinfer_lab.hub.hub_client import headline
from dashinfer_lab.hub.snapshots import is_complete
from tests.hub.loopback_hub import LoopbackHub, serving
from tests.hub.tiny_models import write_safetensors

pytest.importorskip("huggingface_hub")

RESOLVE = """\
import sys
from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.hub import resolve
from dashinfer_lab.hub.hub_client import headline
seen = []
try:
    print(resolve(sys.argv[1], lambda *report: seen.append(report)))
except DashInferLabError as error:
    print(type(error).__name__, error)
if seen:
    assert seen[-1][1] == seen[-1][2] > 0, seen[-1]
"""
Resolve = Callable[[str], str]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LoopbackHub]:
    write_safetensors(tmp_path / "checkpoint")
    files = {path.name: path.read_bytes() for path in (tmp_path / "checkpoint").iterdir()}
    with serving({("lab/tiny", "main"): {**files, "model.bin": b"\x80"}}) as hub:
        yield hub


@pytest.fixture
def resolved(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Resolve in another process; what it printed."""
    places = {"DASHINFER_LAB_CACHE": str(tmp_path / "cache"), "HF_HOME": str(tmp_path / "hf")}
    settings = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))

    def run(name: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", RESOLVE, name],
            env={**os.environ, **places, **settings},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return ended.stdout.strip()

    return run


def test_a_model_of_hugging_face_is_pulled_whole_and_needs_no_hub_later(
    hub: LoopbackHub, resolved: Resolve
) -> None:
    path = Path(resolved("hf:lab/tiny"))

    assert {each.name for each in path.iterdir()} == {
        "config.json", "model.safetensors", ".complete.json",
    }  # fmt: skip
    assert list(path.parent.iterdir()) == [path]
    assert is_complete(path)
    assert resolve("hf:lab/tiny") == path
    with open_checkpoint(path) as opened:
        assert opened.source == "hf:lab/tiny"


def test_an_unknown_model_of_hugging_face_is_named(resolved: Resolve) -> None:
    said = resolved("hf:lab/absent")

    assert said.startswith("HubError")
    assert "'lab/absent'" in said
    assert "Check the spelling" in said


def test_a_flipped_byte_is_noticed_by_the_hash_that_hugging_face_states(
    hub: LoopbackHub, resolved: Resolve
) -> None:
    hub.flipped.add("model.safetensors")
    said = resolved("hf:lab/tiny")

    assert said.startswith("HubError hf:lab/tiny: model.safetensors has the sha256")
    assert is_complete(Path(resolved("hf:lab/tiny")))


def test_a_size_that_hugging_face_lists_wrongly_is_refused(
    hub: LoopbackHub, resolved: Resolve
) -> None:
    hub.stated["model.safetensors"] = {"size": 7}

    assert "is not the 7 bytes that the hub lists" in resolved("hf:lab/tiny")


def test_without_a_network_hugging_face_names_the_way_out(
    hub: LoopbackHub, resolved: Resolve
) -> None:
    hub.web_page = True
    assert "hf:lab/tiny could not be fetched" in resolved("hf:lab/tiny")


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(HubError, match="pip install huggingface_hub"):
        resolve("hf:lab/not-fetched")


def test_what_a_hub_says_is_told_without_the_query_of_an_address() -> None:
    error = OSError("Client error for url: http://hub/file?signature=secret\nmore of it")

    assert headline(error) == "Client error for url: http://hub/file"
