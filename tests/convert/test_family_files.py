"""Families with names of their own convert to the same tensors in shards, tied and untied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dashinfer_lab.convert import Artifact, convert
from dashinfer_lab.errors import CheckpointError
from dashinfer_lab.hub import SafetensorsCheckpoint
from tests.convert.memory_checkpoint import MemoryCheckpoint
from tests.model.family_cases import CASES, FamilyCase

BY_NAME = {case.name: case for case in CASES}


def sharded(case: FamilyCase, directory: Path) -> Path:
    """Three files, the tensors dealt out by a shuffled order."""
    directory.mkdir()
    tensors = case.tensors()
    names = list(np.random.default_rng(3).permutation(sorted(tensors)))
    places: dict[str, str] = {}
    for number in range(3):
        file, part = f"model-0000{number + 1}-of-00003.safetensors", names[number::3]
        save_file({str(name): tensors[str(name)] for name in part}, directory / file)
        places |= dict.fromkeys(map(str, part), file)
    index = json.dumps({"metadata": {}, "weight_map": places})
    (directory / "model.safetensors.index.json").write_text(index)
    (directory / "config.json").write_text(json.dumps(case.whole_config()))
    return directory


def same_tensors(left: Artifact, right: Artifact) -> bool:
    assert left.tensors == right.tensors
    return all(np.array_equal(left.tensor(name), right.tensor(name)) for name in left.tensors)


def cases(*quick: str, without: str = "-") -> pytest.MarkDecorator:
    """Every case but those that `without` begins; those not named are slow."""
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[] if name in quick else [pytest.mark.slow])
            for name in BY_NAME
            if not name.startswith(without)
        ],
    )


@cases("glm4, tied", "chatglm", "gemma2", "baichuan 2, 13B", "qwen", "mixtral")
def test_shards_in_any_order_give_what_one_file_gives(tmp_path: Path, name: str) -> None:
    case = BY_NAME[name]
    # Their names are as long as each other: they lie before the tensors, and move them.
    with SafetensorsCheckpoint(case.write(tmp_path / "lone")) as checkpoint:
        one = convert(checkpoint, tmp_path / "from_one", "a16w8")
    with SafetensorsCheckpoint(sharded(case, tmp_path / "many")) as checkpoint:
        many = convert(checkpoint, tmp_path / "from_many", "a16w8")

    assert same_tensors(one, many)


@cases("chatglm", "qwen", "internlm2", "qwen2", without="baichuan 2")
def test_a_tied_head_is_the_embedding_whether_it_is_there_or_not(tmp_path: Path, name: str) -> None:
    case, head = BY_NAME[name], f"{BY_NAME[name].outer.head}.weight"
    config = {**case.whole_config(), "tie_word_embeddings": True}
    tensors = dict(case.tensors())
    embedding = tensors[f"{case.outer.embedding}.weight"]
    without = {key: value for key, value in tensors.items() if key != head}

    untied = {**config, "tie_word_embeddings": False}

    def made(config: dict[str, object], kept: dict[str, Any], name: str) -> Artifact:
        return convert(MemoryCheckpoint(config, without | kept), tmp_path / name, "fp32")

    absent, present = made(config, {}, "absent"), made(config, {head: embedding}, "present")
    apart = made(untied, {head: embedding}, "apart")
    tied = absent.tensor(f"{case.outer.embedding}.weight")
    assert same_tensors(absent, present)
    assert head not in absent.tensors
    assert np.array_equal(apart.tensor(head), tied)
    with pytest.raises(CheckpointError, match=f"but {head} differs from"):
        made(config, {head: embedding + 1}, "other")
