"""A model converted by the first version of the format still opens, lowers and computes the same.

golden_v1/ holds both files as they were written (a tiny a16w8 Llama) and, in expected.npz, token
ids and the logits that they give. The model is never written anew: what reads it has to go on
reading it. The logits are where the arithmetic of a kernel changed on purpose, as exp's did.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import Artifact
from dashinfer_lab.convert.artifact import FORMAT_VERSION
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.graph.serialize import load_graph

GOLDEN = Path(__file__).parent / "golden_v1"
VERSION = b'"format_version":"1.0"'


def test_the_golden_artifact_computes_the_logits_that_are_known_of_it() -> None:
    expected = np.load(GOLDEN / "expected.npz")

    with LLM(GOLDEN, kv_cache_dtype="fp32") as llm:
        logits = llm.logits(expected["token_ids"].tolist())
    # The numerics contract: the same bits on every machine, whatever its instruction set.
    np.testing.assert_array_equal(logits, expected["logits"])


def test_the_golden_graph_is_a_graph_of_the_golden_tensors() -> None:
    artifact = Artifact.open(GOLDEN)

    model = load_graph(artifact.graph_path, artifact.tensors)
    assert artifact.metadata["format_version"] == "1.0"
    assert set(model.graph.initializers) == set(artifact.tensors)


@pytest.mark.parametrize("minor", [1, 7])
def test_later_minor_versions_of_the_format_still_read_it(
    minor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashinfer_lab.convert.artifact.FORMAT_VERSION", (1, minor))

    assert Artifact.open(GOLDEN).metadata["scheme"] == "a16w8:64"


@pytest.mark.parametrize("newer", [(FORMAT_VERSION[0], FORMAT_VERSION[1] + 1), (2, 0)])
def test_a_format_newer_than_this_version_says_to_convert_again(
    newer: tuple[int, int], tmp_path: Path
) -> None:
    directory = shutil.copytree(GOLDEN, tmp_path / "newer")
    weights = directory / "model.ditensors"
    stated = b'"format_version":"%d.%d"' % newer
    content = weights.read_bytes()
    assert content.count(VERSION) == 1
    weights.write_bytes(content.replace(VERSION, stated))

    with pytest.raises(ArtifactError, match=rf"format {newer[0]}\.{newer[1]}, .*re-convert"):
        Artifact.open(directory)
