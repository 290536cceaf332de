"""Every family's tiny checkpoint, converted and run by us, against transformers in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dashinfer_lab import LLM, SamplingParams
from tests.expected.families import load_family
from tests.model.family_cases import CASES, FamilyCase, token_ids
from tests.oracle.theirs import transformers_model
from tests.oracle.witness import choices, relative_error, whole_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

pytestmark = pytest.mark.oracle


@dataclass(frozen=True, slots=True)
class Pair:
    """One checkpoint on both sides."""

    case: FamilyCase
    theirs: PreTrainedModel
    ours: LLM


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    case: FamilyCase = request.param
    directory = tmp_path_factory.mktemp("family")
    theirs = transformers_model(case, directory)
    with LLM(directory, weights="fp32") as ours:
        yield Pair(case, theirs, ours)


def test_logits_agree_with_transformers(pair: Pair) -> None:
    expected = whole_logits(pair.theirs, token_ids())

    assert relative_error(pair.ours.logits(token_ids()), expected).max() <= 1e-4


def test_16_greedy_tokens_agree_with_transformers(pair: Pair) -> None:
    prompt = token_ids()[:121]  # the answer crosses from one attention segment to the next
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)

    (output,) = pair.ours.generate([{"prompt_token_ids": prompt}], params)

    tokens = list(output.outputs[0].token_ids)
    rows = whole_logits(pair.theirs, [*prompt, *tokens[:-1]])
    expected, margin = choices(rows[len(prompt) - 1 :])
    assert tokens == expected, f"the closest choice led by {margin:.1e} of the row's largest"


def test_the_committed_values_are_those_of_transformers(pair: Pair) -> None:
    kept = load_family(pair.case.name)
    logits = whole_logits(pair.theirs, token_ids())

    # One machine adds in another order than the next.
    assert kept.error(logits).max() <= 1e-5
    np.testing.assert_array_equal(kept.argmax, logits.argmax(axis=1))
