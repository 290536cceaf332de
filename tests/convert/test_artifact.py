"""Opening a converted model: what is damaged, unfinished or of another version is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert.converter import convert
from dashinfer_lab.convert.staging import remove_stale, staging_directory
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.serialize import load_graph
from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "a16w8")


def _edit_metadata(artifact: Artifact, **changes: str) -> None:
    content = artifact.weights_path.read_bytes()
    room = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + room])
    header["__metadata__"].update(changes)
    text = json.dumps(header, separators=(",", ":")).encode().ljust(room)
    assert len(text) == room
    artifact.weights_path.write_bytes(content[:8] + text + content[8 + room :])


def test_config_and_metadata_come_back(artifact: Artifact) -> None:
    assert artifact.config == tiny_config()
    assert artifact.metadata["scheme"] == "a16w8:64"
    assert artifact.metadata["format_version"] == "1.4"
    assert (artifact.metadata["source"], artifact.metadata["revision"]) == ("tiny", "r1")
    assert "tiny as a16w8:64" in repr(artifact)


def test_tensors_are_aligned_views_that_cannot_be_written(artifact: Artifact) -> None:
    tensor = artifact.tensor("model.norm.weight")

    np.testing.assert_array_equal(
        tensor, tiny_checkpoint(tiny_config()).tensors["model.norm.weight"]
    )
    for name in artifact.tensors:
        assert artifact.tensor(name).ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        tensor[0] = 1


def test_an_unknown_tensor_is_named(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError, match="holds no tensor 'model.nom.weight'"):
        artifact.tensor("model.nom.weight")


def test_the_graph_loads_and_agrees_with_the_tensors(artifact: Artifact) -> None:
    model = load_graph(artifact.graph_path, artifact.tensors)

    assert set(model.graph.initializers) == set(artifact.tensors)
    assert model.metadata_props["scheme"] == "a16w8:64"


def test_a_graph_that_points_elsewhere_is_refused(artifact: Artifact) -> None:
    tensors = dict(artifact.tensors)
    tensors["rope.cos"] = tensors["rope.sin"]

    with pytest.raises(ArtifactError, match="'rope.cos' .* belong to different conversions"):
        load_graph(artifact.graph_path, tensors)


def test_a_graph_that_cannot_run_names_its_file_and_the_way_out(artifact: Artifact) -> None:
    model = onnx.load(artifact.graph_path, load_external_data=False)
    del model.graph.node[3]
    artifact.graph_path.write_bytes(model.SerializeToString())

    with pytest.raises(ArtifactError, match=r"model\.dimodel: node .* reads .*; re-convert the"):
        load_graph(artifact.graph_path, artifact.tensors)


def test_a_graph_file_that_is_not_onnx_is_refused(artifact: Artifact) -> None:
    artifact.graph_path.write_bytes(b"<html>")

    with pytest.raises(ArtifactError, match="is not an ONNX file"):
        load_graph(artifact.graph_path, artifact.tensors)


def test_opening_imports_nothing_of_onnx(artifact: Artifact) -> None:
    program = (
        "import sys; from pathlib import Path; from dashinfer_lab.convert import Artifact; "
        f"Artifact.open(Path({str(artifact.directory)!r})); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert roots & {"onnx", "onnx_ir", "gguf", "tokenizers", "transformers"} == set()


@pytest.mark.parametrize("version", ["1.5", "2.0", "0.9", "", "new", "1" * 5000])
def test_another_format_version_asks_to_convert_again(artifact: Artifact, version: str) -> None:
    _edit_metadata(artifact, format_version=version)

    with pytest.raises(ArtifactError, match="re-convert"):
        Artifact.open(artifact.directory)


def test_an_older_minor_version_loads(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashinfer_lab.convert.artifact.FORMAT_VERSION", (1, 7))

    assert Artifact.open(artifact.directory).metadata["format_version"] == "1.4"


def test_the_graph_of_another_conversion_is_refused(artifact: Artifact, tmp_path: Path) -> None:
    other = convert(tiny_checkpoint(tiny_config()), tmp_path / "other", "fp32")
    artifact.graph_path.write_bytes(other.graph_path.read_bytes())

    with pytest.raises(ArtifactError, match="is not the graph that model.ditensors was written"):
        Artifact.open(artifact.directory)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_layers": 0},
        {"num_layers": -1},
        {"context_length": "64"},
        {"head_dim": True},
        {"norm_eps": None},
        {"tie_word_embeddings": 1},
        {"num_heads": 5},
        {"rope": {"theta": "big"}},
    ],
    ids=str,
)
def test_a_config_that_makes_no_sense_is_refused(
    artifact: Artifact, changes: dict[str, object]
) -> None:
    values = json.loads(artifact.metadata["config"]) | changes
    _edit_metadata(artifact, config=json.dumps(values))

    with pytest.raises(ArtifactError, match="configuration is unreadable"):
        Artifact.open(artifact.directory)


def test_an_unreadable_config_is_refused(artifact: Artifact) -> None:
    _edit_metadata(artifact, config='{"rope": {}, "depth": 3}')

    with pytest.raises(ArtifactError, match="configuration is unreadable"):
        Artifact.open(artifact.directory)


@pytest.mark.parametrize("name", ["model.dimodel", "model.ditensors"])
def test_a_missing_file_is_named(artifact: Artifact, name: str) -> None:
    (artifact.directory / name).unlink()

    with pytest.raises(ArtifactError, match="does not hold model.dimodel and model.ditensors"):
        Artifact.open(artifact.directory)


def test_a_killed_conversion_leaves_nothing_that_loads_and_is_cleared_next_time(
    tmp_path: Path,
) -> None:
    program = (
        "import os, signal; from pathlib import Path\n"
        "from tests.convert.memory_checkpoint import tiny_checkpoint, tiny_config\n"
        "from dashinfer_lab.convert.converter import convert\n"
        "def die(progress):\n"
        "    if progress.weight == 'model.layers.1.mlp.up_proj.weight':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"convert(tiny_checkpoint(tiny_config()), Path({str(tmp_path / 'model')!r}), 'fp32',"
        " progress=die)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    killed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment)
    left = list(tmp_path.iterdir())

    assert killed.returncode == -signal.SIGKILL
    assert len(left) == 1
    with pytest.raises(ArtifactError, match="left over from an unfinished conversion"):
        Artifact.open(left[0])
    convert(tiny_checkpoint(tiny_config()), tmp_path / "model", "fp32")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_conversion_that_is_running_is_not_cleared(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with staging_directory(target) as staging:
        (staging / "file").write_text("half", encoding="utf-8")
        remove_stale(target)

        assert (staging / "file").read_text(encoding="utf-8") == "half"
    assert (target / "file").exists()
