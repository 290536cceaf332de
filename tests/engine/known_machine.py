"""An engine on a machine whose every time is known.

The machine takes 7 ms a step, 0.8 ms for each of 64 tokens and 0.55 ms for each beyond, and 0.1 µs
for each pair of query and key: a model of 135 million parameters on two cores, about.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np

from dashinfer_lab.engine import Chunk, ChunkResult, EngineOptions, RequestOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.request import RequestState
from dashinfer_lab.kvcache import PrefixKey
from tests.engine.test_scheduler import generation

__all__ = ["MAX_SLOWDOWN", "Machine", "Served"]

MAX_SLOWDOWN = EngineOptions().max_slowdown or 0.0


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
    held_up_seconds = 0.0

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slowness = 1.0
        self.vary: Callable[[], float] = lambda: 1.0

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        tokens = sum(len(chunk.token_ids) for chunk in chunks)
        pairs = sum(len(c.token_ids) * (c.start + len(c.token_ids) / 2) for c in chunks)
        seconds = 7e-3 + 0.8e-3 * min(tokens, 64) + 0.55e-3 * max(tokens - 64, 0) + 1e-7 * pairs
        self.seconds += self.slowness * self.vary() * seconds
        return [_result(chunk) for chunk in chunks]

    def walk(self, chunks: Sequence[Chunk], most: int) -> list[list[ChunkResult]]:
        raise AssertionError(f"{len(chunks)} chunks were to walk {most} times")

    def copy_page(self, source: int, target: int) -> None:
        raise AssertionError(f"page {source} was copied to {target}")

    def hurry(self, wanted: bool) -> None:
        pass

    def rest(self) -> bool:
        return False

    def close(self) -> None:
        pass


def _result(chunk: Chunk) -> ChunkResult:
    if chunk.logit_rows == "all":
        return ChunkResult(logits=np.zeros((len(chunk.token_ids), 97), np.float32))
    return ChunkResult(None if chunk.sampling is None else 5)


class Served:
    """An engine on the machine, which has seen enough steps to predict others, unless fresh."""

    def __init__(self, *, fresh: bool = False, max_slowdown: float = MAX_SLOWDOWN) -> None:
        self.machine = Machine()
        self.random = random.Random(0)
        self.ids = itertools.count()
        self.num_decoders = 0
        self.unread = False
        options = EngineOptions(max_running=16, max_slowdown=max_slowdown)
        self.core = EngineCore(self.machine, options, lambda: self.machine.seconds)
        for _ in range(0 if fresh else 8):
            self.timed([(100, 20)])

    @staticmethod
    def begun_slowly(slowness: float) -> Served:
        """A fresh engine whose first step took so many times what it takes later."""
        served = Served(fresh=True)
        served.machine.slowness = slowness
        served.add(20, 6000)
        served.core.step()
        served.machine.slowness = 1.0
        return served

    def add(
        self, num_in: int, num_out: int, options: RequestOptions | None = None
    ) -> GenerationRequest:
        prompt = [self.random.randrange(97) for _ in range(num_in)]
        arrival = self.machine.seconds
        request = generation(next(self.ids), prompt, num_out, arrival=arrival, served=options)
        request.events.whole = self.unread
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

    def start_decoders(self, count: int, num_in: int = 128) -> None:
        """Let so many requests reach their second token."""
        decoders = [self.add(num_in, 6000) for _ in range(count)]
        while any(decoder.state is not RequestState.DECODE for decoder in decoders):
            self.core.step()
        self.num_decoders = count

    def gaps_beside(self, num_in: int, options: RequestOptions | None = None) -> list[float]:
        """Seconds of every step that a prompt takes."""
        prompt = self.add(num_in, 1, options)
        gaps: list[float] = []
        while not prompt.finished:
            gaps.append(self.gap())
        return gaps

    def gap(self) -> float:
        """Seconds of a step, in which every decoder draws."""
        begin, drawn = self.machine.seconds, self.core.totals.num_decode_tokens
        self.core.step()
        assert self.core.totals.num_decode_tokens >= drawn + self.num_decoders
        return self.machine.seconds - begin
