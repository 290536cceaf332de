from __future__ import annotations

from typing import Any

import pytest

from dashinfer_lab.engine.drawing import Drawing
from dashinfer_lab.sampling import SamplingParams


@pytest.mark.parametrize(
    ("options", "words", "expected"),
    [
        ({}, [], False),
        ({"top_k": 3, "min_p": 0.1}, [], False),
        ({}, [[3, 4]], True),  # nothing is banned before a 3 was drawn
        ({"min_tokens": 2}, [], True),
        ({"no_repeat_ngram_size": 3}, [], True),
        ({"repetition_penalty": 1.5}, [], True),
        ({"logits_processors": [lambda ids, logits: logits]}, [], True),
    ],
)
def test_draws_whose_rules_may_change_are_made_one_at_a_time(
    options: dict[str, Any], words: list[list[int]], expected: bool
) -> None:
    drawing = Drawing(
        SamplingParams(**options), [1, 2], seed=0, choice=0, words=words, num_ids=9, vocab_size=9
    )

    assert drawing.state(2).needs_history is expected
