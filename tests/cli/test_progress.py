"""What a conversion's bar says, from its progress as data."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dashinfer_lab.config import Language
from dashinfer_lab.convert import ConversionProgress
from dashinfer_lab.progress import conversion_pace

HALF_A_MINUTE = ConversionProgress("lm_head.weight", done=30_000_000, total=135_000_000, seconds=30)


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "30.0M of 135M parameters · 1.00M/s · 01:45 left"),
        ("zh", "30.0M / 135M 参数 · 每秒 1.00M · 剩余 01:45"),
    ],
)
def test_the_bar_tells_amount_rate_and_time_left(language: Language, said: str) -> None:
    assert conversion_pace(HALF_A_MINUTE, language) == said


def test_time_left_is_never_rounded_down() -> None:
    almost = ConversionProgress("w", done=990, total=1000, seconds=10)

    assert conversion_pace(almost, "en").endswith("00:01 left")


@pytest.mark.parametrize(("done", "seconds"), [(0, 1.0), (100, 0.0)])
def test_without_a_rate_no_time_is_promised(done: int, seconds: float) -> None:
    assert conversion_pace(ConversionProgress("w", done, 1000, seconds), "en").endswith(
        "of 1.00k parameters"
    )


def test_a_finished_conversion_has_no_time_left() -> None:
    assert ConversionProgress("w", done=1000, total=1000, seconds=4).remaining_seconds == 0


NOTEBOOK = """\
import sys
from types import ModuleType, SimpleNamespace
for name in ("ipywidgets", "IPython.html.widgets"):
    sys.modules[name] = None
shell = ModuleType("IPython")
shell.get_ipython = lambda: SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = shell
from dashinfer_lab.progress import load_bars
with load_bars("en") as progress:
    progress.fetch("fetching lab/tiny", 5, 10)
"""


def test_a_notebook_without_widgets_gets_a_bar_of_text() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", NOTEBOOK], capture_output=True, text=True
    )

    assert (done.returncode, done.stdout) == (0, "")
    assert "fetching lab/tiny:  50%" in done.stderr
