"""What the README shows in Python is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source_tree import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


def test_there_are_examples() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("code", BLOCKS, ids=["generate", "session"])
def test_an_example_runs_and_answers(
    code: str, embedded_gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}

    exec(compile(code, "README.md", "exec"), names)

    assert "Paris" in capsys.readouterr().out
