from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dashinfer_lab.cli.width import width
from dashinfer_lab.convert import converted
from dashinfer_lab.models import describe_models, supported_models
from tests.cli.conftest import Shell
from tests.hub.tiny_models import write_gguf, write_safetensors


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def conversion(cache: Path, tmp_path: Path) -> Path:
    write_safetensors(tmp_path / "tiny")
    return converted(tmp_path / "tiny", "a16w8")


def test_list_names_what_rm_removes(shell: Shell, conversion: Path) -> None:
    listed = json.loads(shell("list", "--json").out)["models"]
    assert [(it["name"], it["path"]) for it in listed] == [(conversion.name, str(conversion))]
    assert conversion.name in shell("list").out

    ended = shell("rm", conversion.name)

    assert ended.code == 0
    assert not conversion.exists()
    assert shell("list").out == ""


def test_rm_of_an_unknown_name_fails_and_names_the_near_one(shell: Shell, conversion: Path) -> None:
    ended = shell("rm", conversion.name[:-1], "--json")

    assert ended.code == 1
    assert conversion.name in json.loads(ended.out)["error"]["message"]
    assert conversion.exists()


def test_cache_says_where_and_how_much(shell: Shell, conversion: Path, cache: Path) -> None:
    found = json.loads(shell("cache", "--json").out)

    sizes = sum(path.stat().st_size for path in conversion.rglob("*") if path.is_file())
    assert found["path"] == str(cache)
    assert found["kinds"]["conversions"]["num_bytes"] == sizes
    assert str(cache) in shell("cache").out


def test_cache_clears_one_kind(shell: Shell, conversion: Path) -> None:
    assert shell("cache", "--clear", "models").code == 0
    assert conversion.exists()

    freed = json.loads(shell("cache", "--clear", "conversions", "--json").out)

    assert freed["num_bytes"] > 0
    assert not conversion.exists()
    assert shell("cache", "--clear", "everything").code == 1


def test_cache_prunes_what_cut_work_left(shell: Shell, conversion: Path) -> None:
    left = conversion.with_name(".other.converting-1-ab")
    left.mkdir()

    assert shell("cache", "--prune").code == 0

    assert not left.exists()
    assert conversion.exists()


def test_models_lists_every_architecture(shell: Shell) -> None:
    rows = json.loads(shell("models", "--json").out)["models"]
    text = shell("models").out

    assert {row["model_type"] for row in rows} == set(supported_models())
    assert all(row["architecture"] in text and row["description"] in text for row in rows)


def test_models_names_the_test_of_every_format(shell: Shell) -> None:
    (row,) = json.loads(shell("models", "qwen2", "--json").out)["models"]
    cell = row["formats"]["a16w8"]["avx2"]

    assert cell["test"].endswith("::test_logits_are_right[qwen2-a16w8-avx2]")
    assert row["formats"]["a16w8"]["neon"]["proof"] == "emitted"
    assert cell["test"] in shell("models", "qwen2").out
    ended = shell("models", "qwen9")
    assert ended.code == 1
    assert "'qwen9' is not supported; this version runs baichuan" in ended.err


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("model", [[], ["gemma3_text"]], ids=["all", "one"])
def test_models_fits_into_100_columns(shell: Shell, language: str, model: list[str]) -> None:
    lines = shell("--lang", language, "models", *model).out.splitlines()

    assert len(lines) > 30
    assert max(width(line) for line in lines) <= 100


def test_every_model_file_introduces_itself_on_line_one() -> None:
    for model in describe_models():
        assert model.architecture.endswith(("ForCausalLM", "Model"))
        assert model.description.endswith(")")
        assert "(" in model.description


def test_show_describes_a_converted_model(shell: Shell, conversion: Path) -> None:
    found = json.loads(shell("show", str(conversion), "--json").out)

    assert (found["kind"], found["source"]) == ("converted", "tiny")
    assert found["scheme"].startswith("a16w8")
    assert found["context_length"] == 128
    assert "MatMul" in found["graph"]
    assert found["weight_bytes"] > 0


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_show_describes_a_checkpoint(shell: Shell, tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("tiny.gguf" if kind == "gguf" else "tiny")
    write_gguf(path) if kind == "gguf" else write_safetensors(path)

    found = json.loads(shell("show", str(path), "--json").out)
    text = shell("show", str(path)).out

    stored = "F32" if kind == "gguf" else "float32"
    assert (found["kind"], found["scheme"]) == ("checkpoint", stored)
    assert found["weights_reason"].startswith("fp32: the model is tiny")
    assert "scheme fp32" in found["graph"]
    assert found["licence"] == ("mit" if kind == "gguf" else None)
    assert (found["tokenizer"] is not None) == (kind == "gguf")
    assert "2 layers" in text
    assert "MB" in text


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_show_names_the_types_that_the_files_hold(
    shell: Shell, tmp_path: Path, dtype: type
) -> None:
    write_safetensors(tmp_path / "tiny", tensors={"model.norm.weight": np.ones(8, dtype)})

    found = json.loads(shell("show", str(tmp_path / "tiny"), "--json").out)

    assert (found["scheme"], found["weight_bytes"]) == (np.dtype(dtype).name, 16)


def test_show_speaks_chinese(shell: Shell, conversion: Path) -> None:
    rows = shell("--lang", "zh", "show", str(conversion)).out.partition("\n\n")[0].splitlines()

    labels = [row.split()[0] for row in rows]
    assert "量化方案" in labels
    assert [label for label in labels if label.isascii()] == []
    assert rows[2].split() == ["类别", "转换后的模型"]
