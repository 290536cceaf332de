"""Sampling: the written rule, the published tables, the reference's bits, fair draws."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.isa import AVX2, NEON, Isa
from jit_kernels.kernels.sample import sample
from jit_kernels.reference import sample as reference
from jit_kernels.reference.sample import Request
from tests.kernels.machine_code import each_isa, same_bits
from tests.kernels.sample_cases import drawn, logits_of

TABLE = np.log(np.array([0.1, 0.2, 0.3, 0.4])).astype(np.float32)


@each_isa
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(top_k=3), [0, 0.2222, 0.3333, 0.4444]),
        (Request(top_k=0), [0.1, 0.2, 0.3, 0.4]),
        (Request(top_k=4), [0.1, 0.2, 0.3, 0.4]),
        (Request(top_k=1), [0, 0, 0, 1]),
        (Request(top_p=0), [0, 0, 0, 1]),
        (Request(top_p=0.7), [0, 0, 0.4286, 0.5714]),
        (Request(top_p=0.8), [0, 0.2222, 0.3333, 0.4444]),
        (Request(top_p=1), [0.1, 0.2, 0.3, 0.4]),
        (Request(min_p=0.26), [0, 0.2222, 0.3333, 0.4444]),
        (Request(min_p=0.0), [0.1, 0.2, 0.3, 0.4]),
        (Request(min_p=1.05), [0, 0, 0, 1]),
        (Request(temperature=0.5), [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
    ],
    ids=str,
)
def test_the_published_table_holds(isa: Isa, request_: Request, expected: list[float]) -> None:
    weights = drawn(isa, TABLE, [request_]).weights[0]

    np.testing.assert_allclose(weights / weights.sum(), expected, rtol=0, atol=5e-5)


@each_isa
def test_top_p_counts_what_top_k_left(isa: Isa) -> None:
    # Of {.2222, .3333, .4444} the first two reach 0.75; of all four they would not.
    weights = drawn(isa, TABLE, [Request(top_k=3, top_p=0.75)]).weights[0]

    assert (weights > 0).tolist() == [False, False, True, True]


@each_isa
@pytest.mark.parametrize("vocab", [1, 7, 16, 17, 255, 257, 1003])
def test_temperature_zero_takes_the_largest(isa: Isa, vocab: int) -> None:
    logits = logits_of(vocab, seed=vocab)

    assert drawn(isa, logits, [Request(0.0)]).tokens.tolist() == [logits.argmax()]


@each_isa
@pytest.mark.parametrize("ties", [[3, 20, 900], [17, 16], [0, 1002], [1001]])
def test_equal_logits_go_to_the_lowest_id(isa: Isa, ties: list[int]) -> None:
    logits = logits_of(1003)
    logits[ties] = 50

    requests = [Request(0.0), Request(1.0, top_k=1), Request(1.0, top_p=1e-6)]

    assert drawn(isa, logits, requests).tokens.tolist() == [min(ties)] * 3


@each_isa
def test_minus_zero_ties_with_zero(isa: Isa) -> None:
    logits = np.full(40, -1, np.float32)
    logits[[5, 9]] = -0.0, 0.0

    result = drawn(isa, logits, [Request(0.0), Request(1.0, top_k=1)])

    assert result.tokens.tolist() == [5, 5]
    logits[9] = -0.0
    assert drawn(isa, logits, [Request(1.0, top_k=1)]).tokens.tolist() == [5]


@each_isa
@pytest.mark.parametrize("vocab", [5, 64, 257, 1003])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 3.0, 40.0])
def test_draws_have_the_bits_of_the_reference(isa: Isa, vocab: int, spread: float) -> None:
    logits = logits_of(vocab, seed=vocab, spread=spread)
    requests = [
        Request(t, k, p, seed=2**63 + 5, choice=choice, position=2**33 + choice, min_p=m)
        for choice, (t, k, p, m) in enumerate(
            (t, k, p, m)
            for t in (0.3, 1.0, 4.0)
            for k in (0, 3, 40)
            for p in (0.5, 0.95, 1.0)
            for m in (0.0, 0.1)
        )
    ]
    expected = [reference.sample(logits, request) for request in requests]

    actual = drawn(isa, logits, requests)

    assert actual.tokens.tolist() == [token for token, _, _ in expected]
    assert actual.finite.all()
    same_bits(actual.logsumexp, np.array([total for *_, total in expected]))
    same_bits(actual.weights[0], reference.weights(logits, requests[-1]))


@each_isa
@pytest.mark.parametrize(("top_k", "top_p"), [(7, 1.0), (0, 0.6), (30, 0.8)])
def test_ties_are_cut_at_the_lowest_ids(isa: Isa, top_k: int, top_p: float) -> None:
    logits = np.random.default_rng(top_k).integers(0, 4, 400).astype(np.float32)
    request = Request(2.0, top_k, top_p)

    actual = drawn(isa, logits, [request]).weights[0] > 0

    assert np.array_equal(actual, reference.probabilities(logits, 2.0, top_k, top_p) > 0)


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_shortest_beginning(spread: float, top_p: float) -> None:
    logits = logits_of(5003, spread=spread)
    exact = reference.probabilities(logits, 1.0)

    kept = drawn(AVX2, logits, [Request(top_p=top_p)]).weights[0] > 0

    # Sums of 5003 float32 terms in 16 lanes err by at most 317 roundings of 2^-24; exp by 2e-7.
    error = 2 * 317 * 2.0**-24 + 4e-7
    mass = exact[kept].sum()
    assert logits[kept].min() >= logits[~kept].max()
    assert mass >= top_p - error
    assert mass - exact[kept].min() <= top_p + error


@each_isa
def test_ids_beyond_the_vocabulary_are_not_looked_at(isa: Isa) -> None:
    logits = np.concatenate([logits_of(250), np.full(6, np.nan, np.float32)])
    requests = [Request(t, k, p) for t in (0.0, 9.0) for k in (0, 9) for p in (0.9, 1.0)]

    result = drawn(isa, logits, requests, vocab=250)

    assert result.finite.all()
    assert (result.tokens < 250).all()


@each_isa
def test_lanes_beyond_the_vocabulary_are_no_tokens(isa: Isa) -> None:
    # They load as 0, which lies between the second and the third.
    logits = np.array([10, 5, -0.01, -0.02, -5], np.float32)

    weights = drawn(isa, logits, [Request(top_k=3)]).weights[0]

    assert (weights > 0).tolist() == [True, True, True, False, False]


@each_isa
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 100, 256])
def test_a_row_that_is_not_finite_says_so_alone(isa: Isa, bad: float, place: int) -> None:
    logits = np.stack([logits_of(257, seed) for seed in range(3)])
    logits[1, place] = bad

    result = drawn(isa, logits, [Request(seed=seed) for seed in range(3)])

    assert result.finite.tolist() == [1, 0, 1]
    assert result.tokens[1] == 0
    assert np.isnan(result.logsumexp).tolist() == [False, True, False]


def test_company_and_workers_change_nothing() -> None:
    logits = np.stack([logits_of(300, seed) for seed in range(7)])
    requests = [Request(0.9, 20, 0.9, seed=seed, position=seed) for seed in range(7)]
    alone = [drawn(AVX2, logits[r], [requests[r]]).tokens[0] for r in range(7)]

    for num_workers in (1, 2, 5):
        assert drawn(AVX2, logits, requests, num_workers).tokens.tolist() == alone
    assert drawn(AVX2, logits[::-1], requests[::-1]).tokens.tolist() == alone[::-1]


@pytest.mark.parametrize("field", ["seed", "choice", "position"])
def test_each_part_of_the_counter_changes_the_draws(field: str) -> None:
    draws = [
        drawn(AVX2, logits_of(1003), [Request(9.0, **{field: value})]).tokens[0]
        for value in (0, 1, 2, 3, 2**31)
    ]

    assert len(set(draws)) == 5


@pytest.mark.parametrize(
    "request_", [Request(), Request(0.7, top_k=12), Request(1.5, top_p=0.9)], ids=str
)
def test_draws_follow_the_distribution(request_: Request) -> None:
    logits = logits_of(20, spread=1.0)
    requests = [
        Request(request_.temperature, request_.top_k, request_.top_p, seed=11, position=position)
        for position in range(20_000)
    ]
    expected = 20_000 * reference.probabilities(
        logits, request_.temperature, request_.top_k, request_.top_p
    )
    possible = expected > 0

    counts = np.bincount(drawn(AVX2, logits, requests).tokens, minlength=20)

    assert not counts[~possible].any()
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    # 99.9 % quantile of chi-square with 19 degrees of freedom; the draws are always the same.
    assert chi_square < 43.8


@each_isa
@pytest.mark.parametrize("logits", [[3.0e38, -3.0e38, 0], [1e-40, 0, -1e-40], [-5, -5, -5]])
@pytest.mark.parametrize("temperature", [1e-30, 1.0, 1e6])
def test_extreme_logits_draw_what_the_reference_draws(
    isa: Isa, logits: list[float], temperature: float
) -> None:
    values = np.array(logits, np.float32)
    request = Request(temperature, top_k=2, top_p=0.9, position=3)
    with np.errstate(over="ignore"):
        expected = reference.sample(values, request)

    result = drawn(isa, values, [request])

    assert (int(result.tokens[0]), bool(result.finite[0])) == expected[:2]
    same_bits(result.logsumexp, np.array([expected[2]]))


@pytest.mark.parametrize("vocab", [1, 100, 50_000])
def test_logsumexp_is_close_to_float64(vocab: int) -> None:
    logits = logits_of(vocab)
    exact = np.log(np.exp(logits.astype(np.float64)).sum())

    actual = drawn(AVX2, logits, [Request(0.0)]).logsumexp[0]

    # The sum errs by vocab/16 roundings at most, the log and the last addition by 2 ulp of ~16.
    assert abs(actual - exact) <= (vocab / 16 + 8) * 2.0**-24 + 4e-6


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_its_authors_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert reference.philox(counter, key) == expected


def test_no_rows_draw_nothing() -> None:
    assert drawn(AVX2, logits_of(7)[None], []).tokens.size == 0


def test_neon_code_is_emitted() -> None:
    code = sample.specialise()

    assert f"{code.symbol}:" in code.show("asm", NEON)
