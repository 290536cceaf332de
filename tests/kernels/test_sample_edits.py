"""Penalties, biases, bans and reports: the written order, the reference's bits, nothing touched."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import AVX2, Isa
from jit_kernels.kernels.sample import NO_TOKEN
from jit_kernels.kernels.sample_top import TOP_LOGITS
from jit_kernels.reference import sample as reference
from jit_kernels.reference.sample import Request
from tests.kernels.machine_code import SIZES, each_isa, same_bits
from tests.kernels.sample_cases import UNWRITTEN, drawn, logits_of

INF = float("inf")
ROW = np.array([2.0, -2.0, 1.0, 0.0], np.float32)


def edited_weights(isa: Isa, request: Request) -> np.ndarray:
    """softmax of the edited ROW, as the kernel weighs it."""
    weights = drawn(isa, ROW, [request]).weights[0]
    return weights / weights.sum()


@each_isa
@pytest.mark.parametrize(
    ("request_", "edited"),
    [
        (Request(counts={0: 0, 1: 3}, repetition=2.0), [1, -4, 1, 0]),
        (Request(counts={0: 0, 1: 3}, presence=0.5), [2, -2.5, 1, 0]),
        (Request(counts={0: 1, 1: 3}, frequency=0.5), [1.5, -3.5, 1, 0]),
        (Request(counts={0: 2}, repetition=4.0, presence=1.0, frequency=0.25), [-1, -2, 1, 0]),
        (Request(counts={3: 1}, repetition=9.0), [2, -2, 1, 0]),
        (Request(biases=((1, 4.0), (3, -1.0))), [2, 2, 1, -1]),
        (Request(biases=((1, 4.0),), counts={1: 1}, repetition=2.0), [2, 1, 1, 0]),
        (Request(biases=((0, -INF),)), [-INF, -2, 1, 0]),
        (Request(biases=((0, -INF), (0, 50.0)), counts={0: 1}, repetition=0.5), [-INF, -2, 1, 0]),
        (Request(allowed=(1, 3)), [-INF, -2, -INF, 0]),
        (Request(allowed=(1, 3), biases=((3, -INF), (2, 9.0))), [-INF, -2, -INF, -INF]),
    ],
    ids=str,
)
def test_edits_come_in_the_written_order(isa: Isa, request_: Request, edited: list[float]) -> None:
    with np.errstate(invalid="ignore"):
        expected = np.exp(np.array(edited)) / np.exp(np.array(edited)).sum()

    np.testing.assert_allclose(edited_weights(isa, request_), expected, rtol=0, atol=1e-6)


def requests_for(vocab: int) -> list[Request]:
    """Edits of every kind, alone and together, with every filter."""
    random = np.random.default_rng(vocab)
    ids = random.permutation(vocab)
    counts = {int(token): int(random.integers(0, 4)) for token in ids[: vocab // 2 + 1]}
    biases = tuple((int(token), float(random.normal())) for token in ids[: vocab // 3 + 1])
    bans = tuple((int(token), -INF) for token in ids[: vocab // 4])
    allowed = tuple(int(token) for token in ids[: vocab - vocab // 3])
    edits = (
        {"counts": counts, "repetition": 1.3},
        {"counts": counts, "presence": 0.7, "frequency": -0.4},
        {"biases": biases + bans},
        {"allowed": allowed},
        {"allowed": allowed, "biases": bans + biases, "counts": counts, "repetition": 0.6},
    )
    filters = ((0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.7, 3, 1.0, 0.0), (2.0, 40, 0.8, 0.05))
    return [
        Request(t, k, p, seed=vocab, position=position, min_p=m, **edit)
        for position, (edit, (t, k, p, m)) in enumerate((e, f) for e in edits for f in filters)
    ]


@each_isa
@pytest.mark.parametrize("vocab", SIZES)
def test_edited_draws_have_the_bits_of_the_reference(isa: Isa, vocab: int) -> None:
    logits, requests = logits_of(vocab, seed=vocab), requests_for(vocab)

    result = drawn(isa, logits, requests)

    expected = [reference.sample(logits, request) for request in requests]
    assert result.tokens.tolist() == [token for token, _, _ in expected]
    same_bits(result.logsumexp, np.array([total for *_, total in expected]))
    last = requests[-1]
    if reference.edited(logits, last).max() > -np.inf:
        same_bits(result.weights[0], reference.weights(reference.edited(logits, last), last))


def test_edited_draws_do_not_depend_on_company_or_workers() -> None:
    requests = requests_for(257)
    logits = np.stack([logits_of(257, seed) for seed in range(len(requests))])
    alone = [drawn(AVX2, logits[r], [requests[r]]).tokens[0] for r in range(len(requests))]

    for num_workers in (1, 2, 5):
        assert drawn(AVX2, logits, requests, num_workers).tokens.tolist() == alone


@each_isa
def test_where_every_id_is_banned_no_token_is_drawn(isa: Isa) -> None:
    bans = tuple((token, -INF) for token in range(4))
    requests = [Request(t, biases=bans) for t in (0.0, 1.0)] + [Request(0.0)]

    result = drawn(isa, ROW, requests, report=1)

    assert result.tokens.tolist() == [NO_TOKEN, NO_TOKEN, 0]
    assert result.finite.all()


@each_isa
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_top_k_of_more_than_are_possible_keeps_the_possible(isa: Isa, top_k: int) -> None:
    request = Request(top_k=top_k, allowed=(1, 3))

    weights = edited_weights(isa, request)

    assert (weights > 0).tolist() == [False, top_k > 1, False, True]


@each_isa
@pytest.mark.parametrize("repetition", [1e-6, 1e6])
def test_penalties_beyond_float32_stay_finite(isa: Isa, repetition: float) -> None:
    logits = np.array([3e38, -3e38, 1, -1], np.float32)
    request = Request(counts=dict.fromkeys(range(4), 9), repetition=repetition, frequency=2.0)

    with np.errstate(over="ignore"):
        expected = reference.sample(logits, request)[0]

    result = drawn(isa, logits, [request])

    assert result.tokens[0] == expected == 0
    assert np.isfinite(result.weights).all()


@each_isa
def test_ids_from_num_ids_on_are_never_drawn_nor_counted(isa: Isa) -> None:
    logits = logits_of(250)
    padded = np.concatenate([logits, np.full(30, 99, np.float32)])
    requests = [Request(t, k, p, position=k) for t in (0.0, 9.0) for k in (0, 9) for p in (0.9, 1)]

    masked = drawn(isa, padded, requests, num_ids=250, report=4)

    alone = drawn(isa, logits, requests, report=4)
    assert masked.tokens.tolist() == alone.tokens.tolist()
    same_bits(masked.logsumexp, alone.logsumexp)
    assert masked.top_ids.tolist() == alone.top_ids.tolist()
    assert drawn(isa, logits, [Request(0.0)], num_ids=999).tokens[0] == logits.argmax()


@each_isa
@pytest.mark.parametrize("vocab", SIZES)
@pytest.mark.parametrize("count", [0, 1, 3, TOP_LOGITS])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_the_likeliest_come_in_order_with_rank_and_logit(
    isa: Isa, vocab: int, count: int, spread: float
) -> None:
    logits = np.round(logits_of(vocab, spread=spread) * 2) / 2  # many are equal
    target = vocab // 2

    result = drawn(isa, logits, [Request(0.0)], report=count + 1, target=target)

    found = min(count, vocab)
    expected = reference.top(logits, count)
    assert result.top_ids[0, :found].tolist() == expected
    same_bits(result.top_logits[0, :found], logits[expected])
    assert (result.top_ids[0, found:] == UNWRITTEN).all()
    assert (result.ranks[0], result.logits[0]) == (reference.rank(logits, target), logits[target])


@each_isa
def test_without_a_target_the_drawn_token_is_reported_as_the_model_rated_it(isa: Isa) -> None:
    requests = [Request(0.0), Request(0.0, biases=((0, -INF),))]

    result = drawn(isa, ROW, requests, report=3)

    assert result.tokens.tolist() == [0, 2]
    assert result.ranks.tolist() == [1, 2]
    assert result.logits.tolist() == [2, 1]
    assert result.top_ids[:, :2].tolist() == [[0, 2], [0, 2]]


@each_isa
def test_a_row_that_asks_for_no_report_gets_none(isa: Isa) -> None:
    result = drawn(isa, ROW, [Request(0.0)], report=0)

    assert result.tokens.tolist() == [ROW.argmax()]
    assert result.logsumexp.tolist() == [UNWRITTEN]
    assert result.ranks.tolist() == [UNWRITTEN]
    assert (result.top_ids == UNWRITTEN).all()
