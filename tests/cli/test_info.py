from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashinfer_lab import diagnostics
from tests.cli.conftest import Shell


def test_info_as_json_holds_what_a_bug_report_needs(shell: Shell) -> None:
    facts = json.loads(shell("info", "--json").out)

    assert facts["cpu"]["isa"]
    assert facts["threads"]["threads"] >= 1
    assert "affinity" in facts["threads"]["reason"]
    assert facts["memory"]["total_mb"] > 0
    assert {"python", "numpy", "llvmlite", "llvm", "dashinfer_lab"} <= set(facts["versions"])
    assert None not in facts["versions"].values()


def test_info_for_people_says_the_same(shell: Shell) -> None:
    facts = json.loads(shell("info", "--json").out)
    lines = shell("info").out.splitlines()

    assert len(lines) == sum(len(values) for values in facts.values())
    assert any(line.split() == ["cpu.isa", facts["cpu"]["isa"]] for line in lines)


def test_info_in_chinese_has_no_english_word_for_a_person(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path))
    lines = shell("--lang", "zh", "info").out.splitlines()
    values = dict(line.split("  ", 1) for line in lines)

    assert values["路径.缓存可写"].strip() == "是"
    assert "个物理核心" in values["线程.原因"]
    assert "尚未测量带宽" in values["权重.自动选择"]
    assert not {"True", "False", "None", "none"} & {value.strip() for value in values.values()}


def test_info_names_the_cache_that_the_environment_chose(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "not" / "yet"))

    paths = json.loads(shell("info", "--json").out)["paths"]

    assert paths["cache"] == str(tmp_path / "not" / "yet")
    assert paths["cache_free_mb"] > 0
    assert not (tmp_path / "not").exists()


def test_an_unknown_isa_in_the_environment_is_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JIT_KERNELS_ISA", "z80")

    ended = shell("info")

    assert ended.code == 1
    assert "z80" in ended.err


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/fs/cgroup/memory.max": "2000000000\n"}, 2000),
        ({"/sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "512000000\n"}, 512),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({}, None),
    ],
)
def test_the_memory_limit_of_a_container_is_read(
    files: dict[str, str], expected: int | None
) -> None:
    assert diagnostics._memory_limit_mb(files.get) == expected


def test_a_cache_that_is_a_file_is_not_writable(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("DASHINFER_LAB_CACHE", str(tmp_path / "cache"))

    assert json.loads(shell("info", "--json").out)["paths"]["cache_is_writable"] is False
