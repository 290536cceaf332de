from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dashinfer_lab.demo.answer import Answer
from dashinfer_lab.demo.compare_tab import Side, common_tokens, verdict
from dashinfer_lab.demo.texts import Texts
from dashinfer_lab.errors import EngineClosedError


def _side(weights: str, mb: float, tokens: list[int], seconds: float | None) -> Side:
    metrics: Any = SimpleNamespace(seconds_per_token=seconds)
    return Side(Answer("", tokens, "stop", None, metrics), weights, mb)


@pytest.mark.parametrize(
    ("one", "other", "expected"), [([], [1], 0), ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2)]
)
def test_tokens_agree_up_to_the_first_that_differs(
    one: list[int], other: list[int], expected: int
) -> None:
    assert common_tokens(one, other) == common_tokens(other, one) == expected


def test_the_verdict_says_what_the_smaller_weights_cost_and_save() -> None:
    large = _side("fp32", 540, [1, 2, 3], 0.02)
    small = _side("a16w8", 135, [1, 2, 4], 0.008)

    for sides in ((large, small), (small, large)):
        assert verdict(*sides, Texts("en")) == (
            "<p class='verdict differ'>The answers agree for 2 tokens, then part. The weights of "
            "a16w8 take 25% of those of fp32; it decoded 2.5 times as fast.</p>"
        )
        assert "a16w8 的权重大小是 fp32 的 25%，解码速度是其 2.5 倍。" in verdict(
            *sides, Texts("zh")
        )


def test_weights_of_one_size_and_answers_without_a_speed_are_not_compared() -> None:
    side, short = _side("fp32", 540, [1], 0.02), _side("a16w8", 135, [1], None)

    for other in (side, short):
        assert verdict(side, other, Texts("en")) == (
            "<p class='verdict same'>Both answers are the same, token for token (1).</p>"
        )


def test_after_an_error_there_is_no_verdict() -> None:
    failed = Side(Answer("", [], "error", EngineClosedError("the engine is closed")), "fp32")

    assert verdict(failed, _side("a16w8", 135, [1], 0.1), Texts("en")) == ""
