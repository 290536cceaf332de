"""What the schedule makes of a machine whose every time is known: batches gain, decoders go on.

The machine takes 7 ms a step, 0.8 ms for each of 64 tokens and 0.55 ms for each beyond, and 0.1 µs
for each pair of query and key: a model of 135 million parameters on two cores, about.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from statistics import median

from dashinfer_lab.engine import Chunk, ChunkResult, EngineOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.request import RequestState
from dashinfer_lab.kvcache import PrefixKey
from tests.engine.test_scheduler import generation


class Machine:
    """A runner that computes nothing and lets its own clock go on."""

    page_size = 32
    prefix_key = PrefixKey("machine", "none", "none", 1.0)
    num_pages = 4000
    max_tokens = 512
    max_logit_rows = 64
    vocab_size = 97
    context_length = 8192
    max_walks = 1

    def __init__(self) -> None:
        self.seconds = 0.0

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        tokens = sum(len(chunk.token_ids) for chunk in chunks)
        pairs = sum(len(c.token_ids) * (c.start + len(c.token_ids) / 2) for c in chunks)
        self.seconds += 7e-3 + 0.8e-3 * min(tokens, 64) + 0.55e-3 * max(tokens - 64, 0)
        self.seconds += 1e-7 * pairs
        return [ChunkResult(None if chunk.sampling is None else 5) for chunk in chunks]

    def walk(self, chunks: Sequence[Chunk], most: int) -> list[list[ChunkResult]]:
        raise AssertionError(f"{len(chunks)} chunks were to walk {most} times")

    def copy_page(self, source: int, target: int) -> None:
        raise AssertionError(f"page {source} was copied to {target}")

    def close(self) -> None:
        pass


class Served:
    """An engine on the machine, which has seen enough steps to predict others."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.random = random.Random(0)
        self.ids = itertools.count()
        self.core = EngineCore(
            self.machine, EngineOptions(max_running=16), lambda: self.machine.seconds
        )
        for _ in range(8):
            self.timed([(100, 20)])

    def add(self, num_in: int, num_out: int) -> GenerationRequest:
        prompt = [self.random.randrange(97) for _ in range(num_in)]
        arrival = self.machine.seconds
        request = generation(next(self.ids), prompt, num_out, arrival=arrival)
        self.core.add(request)
        return request

    def timed(self, shapes: Sequence[tuple[int, int]]) -> float:
        """Seconds for requests that come together."""
        begin = self.machine.seconds
        for num_in, num_out in shapes:
            self.add(num_in, num_out)
        while self.core.has_work:
            self.core.step()
        return self.machine.seconds - begin

    def length(self) -> int:
        return min(max(round(self.random.lognormvariate(4.852, 0.6)), 8), 768)


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


def test_decoders_go_on_while_a_long_prompt_is_computed() -> None:
    served = Served()
    decoders = [served.add(128, 6000) for _ in range(8)]
    while any(decoder.state is not RequestState.DECODE for decoder in decoders):
        served.core.step()

    def gap() -> float:
        begin, drawn = served.machine.seconds, served.core.totals.num_decode_tokens
        served.core.step()
        assert served.core.totals.num_decode_tokens == drawn + 8
        return served.machine.seconds - begin

    without = median(gap() for _ in range(20))
    prompt = served.add(8000, 1)
    gaps: list[float] = []
    while not prompt.finished:
        gaps.append(gap())

    assert max(gaps) / without < 2.5
