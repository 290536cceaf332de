"""What all views have in common: a fallback, both languages, no widget before it is wanted."""

from __future__ import annotations

import re
import string
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.util import find_spec
from typing import Any

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import OpProfile
from dashinfer_lab.widgets import (
    ChatPanel,
    EngineView,
    KernelViewer,
    ModelLoader,
    ProfileDashboard,
    QuantisationExplorer,
)
from dashinfer_lab.widgets.view import View
from dashinfer_lab.widgets.words import WORDS

WIDGET = "application/vnd.jupyter.widget-view+json"
CHINESE = re.compile("[\u4e00-\u9fff]")
VOID = {"img", "br", "meta", "rect", "path", "polyline", "polygon", "source"}
MAKERS: dict[str, Callable[..., View]] = {
    "loader": lambda tiny, **options: ModelLoader(tiny.artifact.directory, **options),
    "explorer": QuantisationExplorer,
    "dashboard": ProfileDashboard,
    "kernels": KernelViewer,
    "engine": EngineView,
    "chat": ChatPanel,
}
each_view = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


@each_view
def test_a_view_is_a_widget_and_beside_it_html_and_text(
    make: Callable[..., View], tiny: LLM
) -> None:
    view = make(tiny, lang="en")

    bundle = view._repr_mimebundle_()

    assert bundle[WIDGET]["model_id"] == view.widget.model_id  # type: ignore[index]
    assert bundle["text/plain"] == repr(view)
    balance = _Balance()
    balance.feed(str(bundle["text/html"]))
    assert (balance.open, balance.wrong) == ([], [])
    view.close()


@each_view
def test_without_ipywidgets_a_view_is_html_and_says_what_controls_need(
    make: Callable[..., View], tiny: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> object:
        return None if name == "ipywidgets" else find_spec(name)

    monkeypatch.setattr("dashinfer_lab.widgets.view.find_spec", absent)
    view = make(tiny, lang="en")

    assert set(view._repr_mimebundle_()) == {"text/plain", "text/html"}
    with pytest.raises(ConfigError, match="pip install ipywidgets"):
        _ = view.widget
    view.close()


@each_view
def test_a_view_speaks_chinese_and_english(make: Callable[..., View], tiny: LLM) -> None:
    english, chinese = make(tiny, lang="en"), make(tiny, lang="zh")

    assert not CHINESE.search(english.html.partition("</style>")[2])
    assert CHINESE.search(chinese.html.partition("</style>")[2])
    with pytest.raises(ConfigError, match="'fr'"):
        make(tiny, lang="fr")


@each_view
def test_a_view_closes_twice_and_takes_its_widget_away(
    make: Callable[..., View], tiny: LLM
) -> None:
    view = make(tiny, lang="en")
    widget = view.widget

    view.close()
    view.close()

    assert widget.comm is None


def test_both_languages_of_a_sentence_have_the_same_placeholders() -> None:
    def names(text: str) -> set[str | None]:
        return {field for _, field, _, _ in string.Formatter().parse(text) if field}

    assert {key for key, (en, zh) in WORDS.items() if names(en) != names(zh)} == set()


def test_the_package_is_imported_without_ipywidgets() -> None:
    program = "import sys, dashinfer_lab.widgets; print('ipywidgets' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "False"


@each_view
def test_a_view_of_something_else_says_what_it_wants(make: Callable[..., View]) -> None:
    if make is MAKERS["loader"]:
        assert "no-such-model is not on this machine" in ModelLoader("no-such-model").html
        return
    with pytest.raises(ConfigError, match="LLM"):
        make(3)


def test_a_dashboard_of_a_profile_has_no_run_button(profile: OpProfile) -> None:
    assert len(ProfileDashboard(profile).widget.children) == 3
