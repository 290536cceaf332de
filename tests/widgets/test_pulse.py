from __future__ import annotations

import threading
import time
from itertools import pairwise

from dashinfer_lab.widgets.pulse import SECONDS_BETWEEN, Pulse
from tests.widgets.conftest import eventually


def test_many_beats_are_few_drawings_and_the_last_one_is_drawn() -> None:
    news, seen, times = [0], [], []

    def draw() -> None:
        seen.append(news[0])
        times.append(time.monotonic())

    pulse = Pulse(draw)
    begin = time.monotonic()
    while time.monotonic() - begin < 0.5:
        news[0] += 1
        pulse.beat()

    assert eventually(lambda: bool(seen) and seen[-1] == news[0])
    assert len(seen) <= (times[-1] - begin) / SECONDS_BETWEEN + 1
    assert all(later - earlier >= SECONDS_BETWEEN * 0.99 for earlier, later in pairwise(times))


def test_nothing_runs_where_nothing_is_new() -> None:
    drawn = threading.Event()
    pulse = Pulse(drawn.set)
    assert not pulse.running

    pulse.beat()

    assert drawn.wait(10)
    assert eventually(lambda: not pulse.running)
    drawn.clear()
    pulse.beat()
    assert drawn.wait(10)
    pulse.close()


def test_it_goes_on_for_a_while_for_what_changes_by_itself() -> None:
    drawings: list[int] = []
    pulse = Pulse(lambda: drawings.append(1), linger_seconds=0.3)

    pulse.beat()

    assert eventually(lambda: len(drawings) >= 3)
    assert eventually(lambda: not pulse.running)


def test_a_closed_one_draws_no_more() -> None:
    drawings: list[int] = []
    pulse = Pulse(lambda: drawings.append(1))
    pulse.beat()

    pulse.close()
    before = len(drawings)
    pulse.beat()

    assert not pulse.running
    assert len(drawings) == before
