"""Edits and filters of logits against transformers' processors, one for one and in our order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dashinfer_lab.sampling import LogitRules, SamplingParams
from jit_kernels.reference import sample as reference

if TYPE_CHECKING:
    from transformers import LogitsProcessor

pytestmark = pytest.mark.oracle

VOCAB = 97
RANDOM = np.random.default_rng(1)
PROMPT = RANDOM.integers(0, 30, 40).tolist()
OUTPUT = RANDOM.integers(0, 30, 25).tolist()
LOGITS = (RANDOM.standard_normal(VOCAB) * 3).astype(np.float32)


def theirs(processors: list[LogitsProcessor]) -> NDArray[np.float32]:
    """The row after prompt and output, as transformers leaves it."""
    import torch
    from transformers import LogitsProcessorList

    ids = torch.tensor([[*PROMPT, *OUTPUT]])
    scores = torch.from_numpy(LOGITS.copy())[None]
    return LogitsProcessorList(processors)(ids, scores)[0].numpy()


def ours(params: SamplingParams) -> NDArray[np.float32]:
    """The row as the rules have it edited."""
    words = params.bad_words_ids or ()
    rules = LogitRules(params, PROMPT, words=words, num_ids=VOCAB)
    for token_id in OUTPUT:
        rules.observe(token_id)
    edits = rules.edits()
    assert edits is not None
    request = reference.Request(
        allowed=tuple(edits.allowed.tolist()),
        biases=tuple(
            (int(token_id), float(np.array([bits], np.int32).view(np.float32)[0]))
            for token_id, bits in edits.biases
        ),
        counts=dict(edits.penalised.tolist()),
        repetition=edits.repetition,
    )
    return reference.edited(LOGITS, request)


def _repetition(module: Any) -> tuple[LogitsProcessor, SamplingParams]:
    return module.RepetitionPenaltyLogitsProcessor(1.3), SamplingParams(repetition_penalty=1.3)


def _ngrams(module: Any) -> tuple[LogitsProcessor, SamplingParams]:
    return module.NoRepeatNGramLogitsProcessor(2), SamplingParams(no_repeat_ngram_size=2)


def _words(module: Any) -> tuple[LogitsProcessor, SamplingParams]:
    words = [[5], [*OUTPUT[-2:], 9], [OUTPUT[-1], 11], [OUTPUT[-2], 12]]
    return module.NoBadWordsLogitsProcessor(words), SamplingParams(bad_words_ids=words)


def _allowed(module: Any) -> tuple[LogitsProcessor, SamplingParams]:
    kept = list(range(0, VOCAB, 3))
    others = [i for i in range(VOCAB) if i not in kept]
    return module.SuppressTokensLogitsProcessor(others), SamplingParams(allowed_token_ids=kept)


@pytest.mark.parametrize("pair", [_repetition, _ngrams, _words, _allowed])
def test_an_edit_is_transformers_edit(
    pair: Callable[[Any], tuple[LogitsProcessor, SamplingParams]],
) -> None:
    from transformers.generation import logits_process

    processor, params = pair(logits_process)

    expected = theirs([processor])
    assert not np.array_equal(expected, LOGITS)
    # One multiplication or division, each rounded once on both sides.
    np.testing.assert_array_max_ulp(ours(params), expected, maxulp=1)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.9])
@pytest.mark.parametrize("min_p", [0.0, 0.08])
@pytest.mark.parametrize("top_k", [0, 7])
@pytest.mark.parametrize("top_p", [0.55, 1.0])
def test_filters_in_our_order_leave_what_transformers_leaves(
    temperature: float, min_p: float, top_k: int, top_p: float
) -> None:
    from transformers.generation import logits_process

    warpers: list[Any] = [logits_process.TemperatureLogitsWarper(temperature)]
    warpers += [logits_process.MinPLogitsWarper(min_p)] if min_p else []
    warpers += [logits_process.TopKLogitsWarper(top_k)] if top_k else []
    warpers += [logits_process.TopPLogitsWarper(top_p)] if top_p < 1 else []
    scores = theirs(warpers).astype(np.float64)
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()

    request = reference.Request(temperature, top_k, top_p, min_p=min_p)
    weights = reference.weights(LOGITS, request).astype(np.float64)

    assert np.array_equal(weights > 0, expected > 0)
    # exp errs by 2e-7, the division before it by half an ulp of at most 30.
    np.testing.assert_allclose(weights / weights.sum(), expected, rtol=5e-6)


def test_presence_and_frequency_follow_their_published_formula() -> None:
    params = SamplingParams(presence_penalty=0.7, frequency_penalty=0.2)
    rules = LogitRules(params, PROMPT, num_ids=VOCAB)
    for token_id in OUTPUT:
        rules.observe(token_id)
    edits = rules.edits()
    assert edits is not None
    counts = dict(edits.penalised.tolist())
    edited = reference.edited(LOGITS, reference.Request(counts=counts, presence=0.7, frequency=0.2))

    drawn = Counter(OUTPUT)
    expected = [x - 0.2 * drawn[i] - 0.7 * (drawn[i] > 0) for i, x in enumerate(LOGITS.tolist())]
    np.testing.assert_allclose(edited, expected, rtol=0, atol=2e-6)
