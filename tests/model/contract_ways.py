"""Ways in which one prompt may come to be computed, and what it is answered in each.

An `EngineCore` runs in the calling thread, so that a test decides who is in a step, when a request
loses its pages, and what state of the processor a foreign library has left behind.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import cache_root
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import Chunk, EngineOptions
from dashinfer_lab.engine.core import EngineCore
from dashinfer_lab.engine.drawing import Drawing
from dashinfer_lab.engine.generation import GenerationRequest
from dashinfer_lab.engine.logit_request import LogitRequest
from dashinfer_lab.engine.runner import CompiledRunner
from dashinfer_lab.engine.text_stream import TextStream
from dashinfer_lab.lower import PlanLimits, cached_plan
from dashinfer_lab.lower.schedules import kind_of, with_choice
from dashinfer_lab.sampling import SamplingParams
from jit_kernels.autotune import Choice
from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import detect
from jit_kernels.kernels.linear_schedule import trials
from jit_kernels.runtime.threads import Pool
from tests.every_pair import every_pair
from tests.runtime.compiled import compiled, load_float_state

__all__ = ["EVERY_LEVEL", "PROMPT", "Way", "answer", "every_two", "every_way", "opened", "whole"]

PROMPT = np.random.default_rng(5).integers(0, 331, 150).tolist()
KNOWN = 96
"""Tokens whose pages are found where a way says so."""
_NUM_PAGES = 160
_DEFAULT_STATE = 0x1F80
_FLUSHING_STATE = _DEFAULT_STATE | 1 << 15 | 1 << 6 | 3 << 13  # FTZ, DAZ, round toward zero

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Way:
    """One way: others in the step, most tokens of a chunk, threads, and what else happens.

    known: pages of the first tokens are found.  preempted: the request loses its pages on the way.
    stale: pages are full of 0xFF before.  flushing: the caller's thread flushes subnormal numbers
    and rounds toward zero.  schedule: number of a trial of the linear layers' schedules.
    """

    company: int = 0
    chunk: int | None = None
    threads: int = 1
    known: bool = False
    preempted: bool = False
    stale: bool = False
    flushing: bool = False
    schedule: int = 0


EVERY_LEVEL: Mapping[str, Sequence[Any]] = {
    "company": (0, 2, 8, 16),
    "chunk": (None, 1, 7, 64),
    "threads": (1, 2, 3),
    "known": (False, True),
    "preempted": (False, True),
    "stale": (False, True),
    "flushing": (False, True) if platform.machine() == "x86_64" else (False,),
    "schedule": range(len(trials(detect()))),
}


def every_way(levels: Mapping[str, Sequence[Any]]) -> list[Way]:
    """The whole product."""
    return [Way(*values) for values in itertools.product(*levels.values())]


def every_two(levels: Mapping[str, Sequence[Any]]) -> list[Way]:
    """Few ways that hold every two values together; the same ones each time."""
    return [Way(**chosen) for chosen in every_pair(levels)]


@contextmanager
def opened(
    artifact: Artifact, kv_format: Any, threads: int = 1, schedule: int = 0
) -> Generator[CompiledRunner]:
    """A runner with so many threads, whose linear layers all run by the same trial's schedule."""
    isa = detect()
    trial = trials(isa)[schedule]
    limits = PlanLimits(640, 192, threads, trial.row_tile, kv_format)
    plan = cached_plan(artifact, limits, cache_root() / "lowered")
    if schedule:
        kinds = {kind for op in plan.ops if (kind := kind_of(op)) is not None}
        plan = with_choice(
            plan, Choice(trial.row_tile, dict.fromkeys(kinds, trial.schedule.word), {})
        )
    pool = Pool(threads, compiler_for(isa, cache_root() / "objects"))
    runner = CompiledRunner(artifact, plan, pool, num_pages=_NUM_PAGES, context_length=256)
    try:
        yield runner
    finally:
        runner.close()


def whole(runner: CompiledRunner) -> Logits:
    """Logits [150, vocab] of the prompt alone, in one chunk: what every way owes."""
    (result,) = runner.step([Chunk(0, PROMPT, 0, (11, 3, 8, 0, 14), "all", None)])
    assert result.logits is not None
    return result.logits


def answer(runner: CompiledRunner, way: Way) -> Logits:
    """Logits of the prompt's last rows, computed in this way; of all rows where that is possible.

    A whole prompt would be done before it could lose its pages, so its first rows are then not
    asked for, as those of known pages are not.
    """
    runner.cache[:] = 0xFF if way.stale else 0
    core = EngineCore(runner, _options(way), lambda: 0.0)
    with _float_state(_FLUSHING_STATE if way.flushing else _DEFAULT_STATE):
        if way.known:
            _run(core, _target(runner, 100, PROMPT[:KNOWN], [KNOWN - 1]))
        first = KNOWN - 1 if way.known or way.preempted else 0
        target = _target(runner, 0, PROMPT, range(first, len(PROMPT)))
        others = [_other(runner, number) for number in range(1, way.company + 1)]
        requests = [*others[: way.company // 2], target, *others[way.company // 2 :]]
        logits = _run(core, target, requests, preempted=way.preempted)
    assert core.totals.num_preempted >= way.preempted
    assert core.totals.num_cached_tokens >= way.known * (KNOWN - 32)
    assert len(list(core.scheduler.requests())) == way.company  # others go on
    return logits


def _run(
    core: EngineCore,
    target: LogitRequest,
    requests: Sequence[LogitRequest | GenerationRequest] = (),
    *,
    preempted: bool = False,
) -> Logits:
    for request in requests or (target,):
        core.add(request)
    while target.answer.empty():
        core.step()
        if preempted and target in core.scheduler.running:
            core.scheduler._preempt(target)  # pyright: ignore[reportPrivateUsage]
            preempted = False
    logits = target.answer.get()
    assert isinstance(logits, np.ndarray)
    return logits


def _options(way: Way) -> EngineOptions:
    return EngineOptions(
        max_chunk_tokens=way.chunk, enable_prefix_caching=way.known, max_slowdown=None,
        max_step_seconds=None, short_prompt_seconds=None,
    )  # fmt: skip


def _target(
    runner: CompiledRunner, number: int, prompt: list[int], rows: Sequence[int]
) -> LogitRequest:
    return LogitRequest(number, prompt, rows, vocab_size=runner.vocab_size, arrival_seconds=0.0)


def _other(runner: CompiledRunner, number: int) -> GenerationRequest:
    """A prompt of some length whose answer, greedy or drawn, outlasts every target."""
    random = np.random.default_rng(number)
    length = (1, 9, 41, 33, 3, 7, 20)[number % 7]
    prompt = random.integers(0, runner.vocab_size, length).tolist()
    params = SamplingParams(temperature=0.8 * (number % 2), top_k=20, seed=number)
    size = runner.vocab_size
    return GenerationRequest(
        number, prompt, params, max_tokens=200,
        drawing=Drawing(params, prompt, seed=number, choice=0, num_ids=size, vocab_size=size),
        eos_ids=frozenset(), text=TextStream(None, ()), arrival_seconds=0.0,
    )  # fmt: skip


@contextmanager
def _float_state(state: int) -> Generator[None]:
    """The calling thread's rounding and flushing, as a foreign library leaves it."""
    if state == _DEFAULT_STATE:
        yield
        return
    load = compiled(load_float_state)
    load(np.array([state], np.int32))
    try:
        yield
    finally:
        load(np.array([_DEFAULT_STATE], np.int32))
