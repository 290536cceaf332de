from __future__ import annotations

import warnings

import pytest

from dashinfer_lab import LLM
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import OpProfile
from dashinfer_lab.profiling.html import fragment
from dashinfer_lab.widgets import ProfileDashboard
from tests.widgets.conftest import PROMPT


def test_each_button_shows_its_table_or_picture(profile: OpProfile) -> None:
    view = ProfileDashboard(profile, before=profile, lang="en")
    turn = view.widget.children[1]
    shown = {}

    for _, kind in turn.options:
        turn.value = kind
        shown[kind] = view.picture.value

    assert shown["table"] == fragment(profile, "en")
    pictures = {kind for kind, drawn in shown.items() if "data:image/png" in drawn}
    assert pictures == set(shown) - {"table"}
    assert len(set(shown.values())) == len(shown) == 7
    view.close()


def test_the_buttons_follow_what_is_shown_by_a_call(profile: OpProfile) -> None:
    view = ProfileDashboard(profile, lang="en")
    turn = view.widget.children[1]

    view.show("timeline")

    assert turn.value == "timeline"
    assert "data:image/png" in view.picture.value
    view.close()


def test_the_fallback_has_table_and_roofline(profile: OpProfile) -> None:
    html = ProfileDashboard(profile, lang="en").html

    assert "linear_u8" in html
    assert html.count("data:image/png") == 1


def test_chinese_captions_stand_in_html_and_no_glyph_is_missing(
    profile: OpProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashinfer_lab.profiling.picture._chinese_font", lambda: None)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        html = ProfileDashboard(profile, lang="zh").show("roofline").html

    assert "每个点是一个算子" in html


def test_without_matplotlib_the_table_stays_and_pictures_say_what_they_need(
    profile: OpProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashinfer_lab.widgets.profile_html.can_draw", lambda: False)
    view = ProfileDashboard(profile, lang="en")
    _ = view.widget

    view.show("roofline")

    assert view.kinds == ["table"]
    assert "Pictures need matplotlib" in view.picture.value
    assert "linear_u8" in view.html
    view.close()


def test_a_second_run_is_compared_with_the_first(tiny: LLM, profile: OpProfile) -> None:
    view = ProfileDashboard(tiny, roof=False, lang="en")
    assert "Nothing was profiled" in view.html
    assert view.kinds == []

    first = view.run(PROMPT, tokens=2)  # type: ignore[arg-type]  # the model has no tokenizer
    second = view.run(PROMPT, tokens=3)  # type: ignore[arg-type]

    assert (view.before, view.profile) == (first, second)
    assert second.decode.num_tokens == 2
    assert "comparison" in view.kinds


def test_a_run_that_fails_says_why(tiny: LLM) -> None:
    view = ProfileDashboard(tiny, roof=False, lang="en")
    _ = view.widget

    with pytest.raises(Exception, match="tokenizer"):
        view.run("text")

    assert "Not profiled" in view.picture.value
    assert "tokenizer" in view.picture.value
    view.close()


def test_a_profile_cannot_be_run_and_an_unknown_kind_is_refused(profile: OpProfile) -> None:
    view = ProfileDashboard(profile)

    with pytest.raises(ConfigError, match="give an LLM"):
        view.run()
    with pytest.raises(ConfigError, match="no kind 'pie'.*roofline"):
        view.show("pie")
