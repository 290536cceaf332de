"""LongRoPE's two sets of angles: the length that is served chooses one, for every prompt alike."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from dashinfer_lab import LLM
from dashinfer_lab.convert import Artifact
from dashinfer_lab.errors import ArtifactError
from dashinfer_lab.lower.lowering import lowered_ops
from tests.expected.families import FamilyLogits, load_family
from tests.model.family_cases import CASES, token_ids
from tests.model.test_families import converted

BOTH = next(case for case in CASES if case.name.endswith("with LongRoPE, tied"))
SHORT = next(case for case in CASES if case.name.endswith("LongRoPE's original length"))
ORIGINAL = 100


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return converted(BOTH, tmp_path_factory.mktemp("longrope"), "fp32")


def expected(name: str, length: int) -> FamilyLogits:
    """What transformers computed of the first tokens: it chooses by the length of all of them."""
    kept = load_family(name)
    return FamilyLogits(kept.argmax[:length], kept.row_max_abs[:length], kept.samples[:length])


def test_both_cases_have_the_same_weights_and_gain() -> None:
    """So that what transformers computed of the short set holds for either."""
    ours, theirs = BOTH.tensors(), SHORT.tensors()

    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("kv_format", ["fp32", "int8"])
@pytest.mark.parametrize("length", [1, ORIGINAL])
def test_a_context_within_the_original_length_turns_by_the_short_factors(
    artifact: Artifact, length: int, kv_format: str
) -> None:
    prompt = token_ids()[:length]
    served = {"threads": 1, "kv_cache_dtype": kv_format, "progress": False}
    with LLM(artifact.directory, context_length=ORIGINAL, **served) as llm:
        logits = llm.logits(prompt)

    # int8 keys and values move logits by 3.3e-2 of the largest at most, other angles by 0.5.
    tolerance = 1e-4 if kv_format == "fp32" else 0.07
    assert expected(SHORT.name, length).error(logits).max() <= tolerance


def test_a_context_beyond_it_turns_by_the_long_factors_also_short_prompts(
    artifact: Artifact,
) -> None:
    prompt = token_ids()[: ORIGINAL // 2]
    with LLM(artifact.directory, threads=1, context_length=ORIGINAL + 1) as llm:
        logits = llm.logits(prompt)

    assert expected(BOTH.name, len(prompt)).error(logits).max() <= 1e-4


@pytest.mark.parametrize(("length", "kind"), [(ORIGINAL, "short"), (ORIGINAL + 1, "long")])
def test_loading_says_which_factors_hold(
    artifact: Artifact, length: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, "dashinfer_lab.engine.loading"),
        LLM(artifact.directory, threads=1, context_length=length),
    ):
        pass

    assert f"LongRoPE's {kind} factors" in caplog.text


def test_the_config_of_an_artifact_has_both_sets(artifact: Artifact) -> None:
    rope = Artifact.open(artifact.directory).config.rope

    assert (rope.short_factors[5], rope.long_factors[5]) == (2.5, 9.7)
    assert hash(rope) == hash(replace(rope))  # tables are kept by it


@pytest.mark.parametrize("changes", [{"original_length": 101}, {"scaling": "none"}], ids=str)
def test_tables_that_do_not_hold_both_sets_are_refused(
    artifact: Artifact, changes: dict[str, object]
) -> None:
    config = artifact.config
    forged = replace(config, rope=replace(config.rope, **changes))

    with pytest.raises(ArtifactError, match="rope.cos"):
        lowered_ops(replace(artifact, config=forged))
