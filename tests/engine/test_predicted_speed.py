"""What the schedule makes of a machine whose every time is known: batches gain, decoders go on."""

from __future__ import annotations

import random
from statistics import median

import pytest

from dashinfer_lab.engine import RequestOptions
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.logit_request import LogitRequest
from dashinfer_lab.engine.request import RequestState
from tests.engine.known_machine import MAX_SLOWDOWN, Served


def test_a_mixed_load_takes_little_longer_than_its_parts_and_far_less_than_one_by_one() -> None:
    served = Served()
    shapes = [(served.length(), served.length()) for _ in range(32)]
    alone = sum(served.timed([shape]) for shape in shapes)
    a_prompt_token = served.timed([(512, 1)]) / 512
    a_drawn_token = (served.timed([(128, 128)] * 16) - served.timed([(128, 1)] * 16)) / (16 * 127)
    parts = sum(a * a_prompt_token + b * a_drawn_token for a, b in shapes)
    together = served.timed(shapes)

    assert alone / together >= 2.3
    assert parts / together >= 0.85


def test_prompts_take_what_they_need_where_nobody_reads_before_the_end() -> None:
    served = Served()
    served.unread = True
    shapes = [(served.length(), served.length()) for _ in range(64)]
    a_prompt_token = served.timed([(512, 1)]) / 512
    # A step of 16 that draw, half of their prompts and answers known: 7 ms, 0.8 ms and attention.
    a_drawn_token = (7e-3 + 16 * (0.8e-3 + 192e-7)) / 16
    parts = sum(a * a_prompt_token + b * a_drawn_token for a, b in shapes)

    # What is missing are the last answers, beside which slots are empty.
    assert parts / served.timed(shapes) >= 0.9


def test_one_reader_is_enough_to_bound_a_step() -> None:
    served = Served()
    served.unread = True
    decoders = [served.add(128, 6000) for _ in range(8)]
    while any(decoder.state is not RequestState.DECODE for decoder in decoders):
        served.core.step()
    served.num_decoders = 8
    without = median(served.gap() for _ in range(5))
    served.add(4000, 1)
    unread = served.gap()
    decoders[3].events.whole = False

    assert unread > 10 * without
    assert served.gap() / without < 2.5


def test_decoders_go_on_while_a_long_prompt_is_computed() -> None:
    served = Served()
    served.start_decoders(8)
    without = median(served.gap() for _ in range(20))
    prompt = served.add(8000, 1)
    gaps: list[float] = []
    while not prompt.finished:
        gaps.append(served.gap())

    assert max(gaps) / without < 2.5


@pytest.mark.parametrize("num_alone", [0, 1, 5])
@pytest.mark.parametrize(("num_decoders", "num_in"), [(8, 128), (8, 20), (8, 1), (1, 128), (1, 3)])
def test_decoders_go_on_though_the_engine_has_seen_few_steps(
    num_decoders: int, num_in: int, num_alone: int
) -> None:
    served = Served(fresh=True)
    served.start_decoders(num_decoders, num_in)
    for _ in range(num_alone):
        served.gap()
    prompt = served.add(4000, 1)
    gaps: list[float] = []
    while not prompt.finished:
        gaps.append(served.gap())
    without = median(served.gap() for _ in range(5))

    assert max(gaps) / without < 2.6
    # 0.8 ms a token, in seven tenths of what is allowed beyond decodes: attention takes time, too.
    share = MAX_SLOWDOWN - 1
    assert len(gaps) < 4000 * 0.8e-3 / (0.7 * share * without) + 20


@pytest.mark.parametrize("max_slowdown", [1.3, 1.5, MAX_SLOWDOWN, 2.0])
@pytest.mark.parametrize("slowness", [1.0, 2.0, 4.0, 16.0, 64.0])
@pytest.mark.parametrize(
    ("num_decoders", "num_in"), [(8, 1), (8, 20), (8, 512), (1, 3), (1, 128), (1, 512)]
)
def test_a_first_step_that_took_long_harms_no_later_one(
    num_decoders: int, num_in: int, slowness: float, max_slowdown: float
) -> None:
    served = Served(fresh=True, max_slowdown=max_slowdown)
    decoders = [served.add(num_in, 6000) for _ in range(num_decoders)]
    served.machine.slowness = slowness  # weights come from the disk
    served.core.step()
    served.machine.slowness = 1.0
    while any(decoder.state is not RequestState.DECODE for decoder in decoders):
        served.core.step()
    served.num_decoders = num_decoders
    prompt = served.add(4000, 1)
    gaps: list[float] = []
    while not prompt.finished:
        gaps.append(served.gap())
    without = median(served.gap() for _ in range(5))

    # A fresh engine has one longer step: it is to have 16 tokens, so that costs can be told apart.
    assert sorted(gaps)[-2] / without < max(1.3 * max_slowdown, 1.9)
    assert max(gaps) / without < 2.6
    # Without: 310 steps beside 8 decoders, 550 beside one. No step has fewer than two tokens.
    assert len(gaps) < min({8: 340, 1: 610}[num_decoders] / (max_slowdown - 1), 2000) + 40


@pytest.mark.parametrize("num_slow", [2, 4, 8])
@pytest.mark.parametrize("slowness", [2.0, 16.0])
def test_a_few_slow_steps_are_outweighed_by_later_ones(num_slow: int, slowness: float) -> None:
    served = Served(fresh=True)
    served.machine.slowness = slowness
    served.start_decoders(8)
    for _ in range(num_slow):
        served.gap()
    served.machine.slowness = 1.0
    gaps = served.gaps_beside(4000)
    without = median(served.gap() for _ in range(5))

    # Three steps tell that the machine is another one, and each may have twice the tokens.
    assert sorted(gaps)[-4] / without < 1.15 * MAX_SLOWDOWN
    assert max(gaps) / without < 6


@pytest.mark.parametrize("slowness", [0.5, 3.0, 10.0])
def test_a_machine_that_changes_its_speed_is_soon_known_again(slowness: float) -> None:
    served = Served()
    served.start_decoders(8)
    for _ in range(100):
        served.gap()
    prompt = served.add(4000, 1)
    for _ in range(30):
        served.gap()
    served.machine.slowness = slowness
    gaps = [served.gap() for _ in range(300) if not prompt.finished]
    without = 13.4e-3 * slowness  # 7 ms, and 0.8 for each of eight; keys of decoders come on top

    assert sorted(gaps)[-6] / without < 1.15 * MAX_SLOWDOWN
    assert median(gaps) / without > 0.85 * MAX_SLOWDOWN


def test_steps_that_merely_vary_are_no_other_machine() -> None:
    served = Served()
    served.start_decoders(8)
    varies = random.Random(1)
    served.machine.vary = lambda: varies.lognormvariate(0, 0.4)
    for _ in range(100):
        served.gap()
    prompt = served.add(4000, 1)
    took: list[int] = []
    while not prompt.finished:
        before = served.core.totals.num_prefill_tokens
        served.gap()
        took.append(served.core.totals.num_prefill_tokens - before)

    assert took.count(0) / len(took) < 0.1


@pytest.mark.parametrize("num_decoders", [1, 8])
def test_a_prompt_that_ranks_first_is_not_held_up_by_a_slow_first_step(num_decoders: int) -> None:
    served = Served.begun_slowly(4.0)
    served.start_decoders(num_decoders, 20)
    gaps = served.gaps_beside(4000, RequestOptions(priority=-1))

    # What it takes where it does not rank first, and a step of one token in 64.
    assert len(gaps) < {1: 620, 8: 350}[num_decoders] / (MAX_SLOWDOWN - 1)


@pytest.mark.parametrize("num_decoders", [1, 8])
def test_logits_of_a_prompt_are_no_decodes(num_decoders: int) -> None:
    served = Served.begun_slowly(16.0)
    served.start_decoders(num_decoders, 20)
    request = LogitRequest(
        next(served.ids), [1] * 2000, range(2000), vocab_size=97, arrival_seconds=0.0
    )
    served.core.add(request)
    num_steps = 0
    while not request.finished:
        served.core.step()
        num_steps += 1

    assert num_steps < {1: 450, 8: 280}[num_decoders]


def test_a_step_that_keeps_a_prompt_back_draws_one_token() -> None:
    served = Served(fresh=True)
    served.start_decoders(2)
    served.machine.max_walks = 8
    served.add(200, 1)
    served.core.step()  # walks are refused by the machine

    assert served.core.totals.num_prefill_tokens == 2 * 128


@pytest.mark.parametrize("shape", [(128, 64), (1000, 20)])
def test_prompts_that_come_together_to_a_fresh_engine_wait_no_longer_than_later(
    shape: tuple[int, int],
) -> None:
    served = Served(fresh=True)
    first, later = served.timed([shape] * 16), served.timed([shape] * 16)

    assert first / later < 1.1


@pytest.mark.parametrize("num_decoders", [1, 8])
def test_a_short_prompt_beside_decoders_is_computed_in_one_step(num_decoders: int) -> None:
    served = Served()
    served.start_decoders(num_decoders)
    for _ in range(40):
        served.gap()
    prompt = served.add(100, 1)

    # 7 ms, 0.8 ms for each of 64 tokens and 0.55 for the others; attention adds less than 1 ms.
    assert served.gap() < 0.085
    assert prompt.finished


def test_short_prompts_in_a_row_slow_decoders_no_more_than_agreed() -> None:
    served = Served()
    served.start_decoders(8)
    without = median(served.gap() for _ in range(40))
    gaps: list[float] = []
    num_answered = 0
    prompt = served.add(100, 1)
    for _ in range(400):
        gaps.append(served.gap())
        if prompt.finished:
            num_answered += 1
            prompt = served.add(100, 1)

    # What is agreed of what decodes are predicted to take, and a tenth since no straight line goes
    # through all of this machine's steps. The time of one short prompt comes on top, once.
    assert sum(gaps) < 1.1 * MAX_SLOWDOWN * without * len(gaps) + 0.1
    assert num_answered >= 40


def test_short_prompts_neither_break_a_long_one_s_promise_nor_wait_for_its_end() -> None:
    served = Served()
    served.start_decoders(8)
    without = median(served.gap() for _ in range(20))
    long = served.add(8000, 1)
    gaps = [served.gap() for _ in range(3)]
    waits: list[float] = []
    while not long.finished:
        short = served.add(60, 1)
        begin = served.machine.seconds
        while not short.finished and not long.finished:
            gaps.append(served.gap())
        waits.append(served.machine.seconds - begin)

    assert max(gaps) / without < 2.5
    assert len(waits) > 20
    assert max(waits[:-1]) < 1.0
    assert served.core.totals.num_decode_tokens > 8 * len(waits)


def test_the_long_prompt_gets_half_whatever_short_ones_come() -> None:
    alone, beside = Served(), Served()
    took: list[float] = []
    for served in (alone, beside):
        served.start_decoders(8)
        long = served.add(4000, 1)
        begin = served.machine.seconds
        short: GenerationRequest | None = None
        while not long.finished:
            if served is beside and (short is None or short.finished):
                short = served.add(60, 1)
            served.core.step()
        took.append(served.machine.seconds - begin)

    # Each step leaves it half of the tokens, or one more than that.
    assert took[1] / took[0] < 2.1
