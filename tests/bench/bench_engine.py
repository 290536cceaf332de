"""What shared prefixes, batches and long prompts do to times, on one model in one run.

    python -m tests.bench.bench_engine MODEL --only prefix
    python -m tests.bench.bench_engine MODEL --only mixed
    python -m tests.bench.bench_engine MODEL --only gap
    python -m tests.bench.bench_engine MODEL --only short

prefix   time to first token of 2,000 tokens: cold, with all but 20 known, and as a session's turn
mixed    64 requests, log-normal around 128 in and 128 out, 16 at a time, against one by one and
         against the time that the measured rates of prefill and decode would take; once for callers
         that wait for whole answers, once for such that read the tokens as they come
gap      time between tokens of 8 decoders while a prompt of 8,000 tokens prefills, against theirs
         alone: every so many steps the prompt is sent anew, and finds what it had in the cache;
         with --rounds 3 also the longest of medians of three: each gap, and those at the same place
         of the other rounds' prompts. What the host takes away differs from round to round
short    time to first token of 64 tokens alone, beside 8 decoders, and beside a long prompt as well

Each takes one to two minutes with a model of 135 million parameters on two cores. Ratios are the
point: other programs move all times, so the machine should be idle, and `--rounds` repeats.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Final

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.engine import EngineOptions
from dashinfer_lab.events import StepEvent

_SLOTS: Final = 16
_KV_BYTES: Final = 3 << 30  # reserved, and touched page by page
_GAP_LIMIT: Final = 2.5
_STRETCH_STEPS: Final = 150
_ALONE_STEPS: Final = 50


def say(name: str, value: str) -> None:
    print(f"{name:58} {value}", flush=True)  # noqa: T201  # a bench prints


class Prompts:
    """Random ids, no two prompts alike."""

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._vocab_size = vocab_size

    def ids(self, length: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(length)]

    def length(self) -> int:
        """Log-normal around 128."""
        return min(max(round(self._random.lognormvariate(math.log(128), 0.6)), 8), 768)


def drawn(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


def first_token_seconds(llm: LLM, ids: Sequence[int]) -> float:
    handle = llm.engine.submit(ids, drawn(1))
    handle.completion()
    assert handle.metrics is not None
    return handle.metrics.ttft_seconds or math.nan


def bench_prefix(llm: LLM, prompts: Prompts, rounds: int) -> None:
    cold: list[float] = []
    known: list[float] = []
    turn: list[float] = []
    for _ in range(2 + rounds):
        ids = prompts.ids(2000)
        cold.append(first_token_seconds(llm, ids))
        known.append(first_token_seconds(llm, [*ids[:1980], *prompts.ids(20)]))
        history = [*ids, *llm.engine.submit(ids, drawn(32)).completion().token_ids]
        turn.append(first_token_seconds(llm, [*history, *prompts.ids(20)]))
    say("prefix: 2,000 tokens, cold", f"{median(cold) * 1e3:8.1f} ms")
    for name, seconds in (("all but 20 known", known), ("a session's next turn", turn)):
        share = median(s / c for s, c in zip(seconds, cold, strict=True))
        say(f"prefix: {name}", f"{median(seconds) * 1e3:8.1f} ms  {share:6.1%} (at most 10 %)")


def bench_mixed(llm: LLM, prompts: Prompts, rounds: int) -> None:
    shapes = [(prompts.length(), prompts.length()) for _ in range(64)]
    found = {"whole": Mixed(), "read": Mixed()}
    for _ in range(rounds):
        alone = _timed(lambda: [_answer(llm, prompts, shape) for shape in shapes])
        expected = _predicted(llm, prompts, shapes)
        for name, mixed in found.items():
            answer_all = partial(_answer_all, llm, prompts, shapes, whole=name == "whole")
            together = _timed(answer_all)  # by itself, as one by one: who watches slows calls
            with watched(llm) as steps:
                answer_all()
            mixed.ratios.append(alone / together)
            mixed.shares.append(expected / together)
            mixed.gaps += [gap for gap, step in _gaps(steps) if step.num_decode_tokens]
    for name, mixed in found.items():
        mixed.say(f"mixed, {name}")


@dataclass(slots=True)
class Mixed:
    """What the rounds of a mixed load gave. gaps: seconds between calls that draw."""

    ratios: list[float] = field(default_factory=list[float])
    shares: list[float] = field(default_factory=list[float])
    gaps: list[float] = field(default_factory=list[float])

    def say(self, name: str) -> None:
        gaps = sorted(self.gaps)
        say(f"{name}: 64 in 16 slots, against one by one", f"{median(self.ratios):8.2f} × (2.3)")
        say(f"{name}: of the speed that its parts predict", f"{median(self.shares):8.1%} (85 %)")
        for share in (0.5, 0.99):
            gap = gaps[int(len(gaps) * share)] * 1e3
            say(f"{name}: time between calls that draw, p{share * 100:.0f}", f"{gap:8.1f} ms")


def _answer(llm: LLM, prompts: Prompts, shape: tuple[int, int]) -> None:
    llm.engine.submit(prompts.ids(shape[0]), drawn(shape[1])).completion()


def _answer_all(
    llm: LLM, prompts: Prompts, shapes: Sequence[tuple[int, int]], *, whole: bool = True
) -> None:
    handles = [llm.engine.submit(prompts.ids(a), drawn(b), block=True) for a, b in shapes]
    for handle in handles:
        if whole:
            handle.want_whole()
        else:
            handle.listen(lambda: None)
    for handle in handles:
        handle.completion()


def _timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def _predicted(llm: LLM, prompts: Prompts, shapes: Sequence[tuple[int, int]]) -> float:
    """Seconds for all prompts at the rate of one of 512, and all draws at that of full slots."""
    prefill_rate = 512 / first_token_seconds(llm, prompts.ids(512))
    with watched(llm) as steps:
        _answer_all(llm, prompts, [(128, 128)] * _SLOTS)
    full = [(gap, s) for gap, s in _gaps(steps) if _only_decodes(s) and s.num_requests == _SLOTS]
    decode_rate = sum(step.num_decode_tokens for _, step in full) / sum(gap for gap, _ in full)
    num_in, num_out = (sum(shape[part] for shape in shapes) for part in (0, 1))
    say("mixed: prefill of 512 tokens", f"{prefill_rate:8.0f} tokens/s")
    say(f"mixed: decode of {_SLOTS} requests", f"{decode_rate:8.0f} tokens/s")
    return num_in / prefill_rate + num_out / decode_rate


def _gaps(steps: Sequence[StepEvent]) -> Iterator[tuple[float, StepEvent]]:
    """Seconds from the begin of each step to that of the next."""
    for step, following in pairwise(steps):
        yield following.begin_seconds - step.begin_seconds, step


def _only_decodes(step: StepEvent) -> bool:
    return step.num_decode_tokens > 0 and step.num_prefill_tokens == 0


@contextmanager
def watched(llm: LLM) -> Generator[list[StepEvent]]:
    """The steps that are taken meanwhile."""
    seen: list[StepEvent] = []
    end = llm.engine.subscribe(seen.append)
    try:
        yield seen
    finally:
        end()


def bench_gap(llm: LLM, prompts: Prompts, num_tokens: int, rounds: int) -> None:
    found = [_gaps_beside(llm, prompts, num_tokens) for _ in range(rounds)]
    for gaps in found:
        gaps.say(f"gap: while {num_tokens} tokens prefill")
    if rounds > 1:
        medians = _medians_by_place(found)
        over = sum(ratio >= _GAP_LIMIT for ratio in medians)
        say(f"gap: medians of {rounds} at each place, longest", f"{max(medians):8.2f} × (2.5)")
        say(f"gap: medians of {rounds}, of {_GAP_LIMIT} or more", f"{over:8d} of {len(medians)}")


def _medians_by_place(rounds: Sequence[_Gaps]) -> list[float]:
    """Of each gap of each round and the nearest in place of every other."""
    return [
        median(other.nearest(place) for other in rounds)
        for gaps in rounds
        for place, _ in gaps.places
    ]


def _gaps_beside(llm: LLM, prompts: Prompts, num_tokens: int) -> _Gaps:
    decoders = [llm.engine.submit(prompts.ids(128), drawn(8000 - 128)) for _ in range(8)]
    for decoder in decoders:
        decoder.get()
    long_prompt, gaps = prompts.ids(num_tokens), _Gaps()
    before, is_done = _gaps_alone(llm), False
    while not is_done:
        is_done, steps = _some_of_prompt(llm, long_prompt)
        after = _gaps_alone(llm)
        gaps.add(steps, before, after)
        before = after
    for decoder in decoders:
        decoder.cancel()
    return gaps


@dataclass
class _Gaps:
    """Seconds between tokens of decoders beside a prompt, stretch by stretch, in medians alone.

    A stretch's own are those just before and after it: decoders' contexts grow, and a machine's
    speed changes, within what a long prompt takes. places: tokens of the prompt, and the gap there.
    """

    medians_alone: list[float] = field(default_factory=list[float])
    alone: list[float] = field(default_factory=list[float])
    places: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    seconds: float = 0.0
    off: list[float] = field(default_factory=list[float])

    @property
    def beside(self) -> list[float]:
        return [ratio for _, ratio in self.places]

    def nearest(self, place: int) -> float:
        """The gap at the step whose place in the prompt is nearest."""
        index = bisect_left(self.places, (place, 0.0))
        return min(self.places[max(index - 1, 0) : index + 1], key=lambda it: abs(it[0] - place))[1]

    def add(self, steps: Sequence[StepEvent], before: list[float], after: list[float]) -> None:
        begin, end = median(before), median(after)
        self.medians_alone += [begin, end]
        self.alone += [gap / end for gap in after]
        mixed = [it for it in _gaps(steps) if it[1].num_prefill_tokens and it[1].num_decode_tokens]
        share = (end - begin) / max(len(mixed), 1)
        place = self.places[-1][0] if self.places else 0
        for step, (gap, event) in enumerate(mixed):
            place += event.num_prefill_tokens
            self.places.append((place, gap / (begin + share * step)))
        self.seconds += sum(gap for gap, _ in mixed)
        predicted = [(e.run_seconds, e.predicted_seconds) for e in steps]
        self.off += [took / foretold for took, foretold in predicted if foretold is not None]

    def say(self, name: str) -> None:
        first, last = self.medians_alone[0], self.medians_alone[-1]
        say("gap: 8 decoders alone, median", f"{first * 1e3:8.1f} ms, {last * 1e3:.1f} ms after")
        for who, ratios in ("alone", sorted(self.alone)), (name, sorted(self.beside)):
            for share in (0.5, 0.99, 0.999):
                value = ratios[int(len(ratios) * share)]
                say(f"{who}, p{share * 100:g} of {len(ratios)}", f"{value:8.2f} ×")
            say(f"{who}, longest", f"{ratios[-1]:8.2f} ×")
        over = sum(ratio >= _GAP_LIMIT for ratio in self.beside)
        say(f"{name}, of {_GAP_LIMIT} or more", f"{over:8d}")
        say(f"{name}, time in all", f"{self.seconds:8.2f} s")
        say("gap: steps took, of what was predicted, median", f"{median(self.off):8.1%}")


def _some_of_prompt(llm: LLM, ids: list[int]) -> tuple[bool, list[StepEvent]]:
    """Whether a prompt came to its end within some steps, and the steps; what it had is kept."""
    with watched(llm) as steps:
        handle = llm.engine.submit(ids, drawn(1))
        while len(steps) < _STRETCH_STEPS and not handle.ended:
            time.sleep(0.005)
        is_done = handle.ended
        handle.cancel()
    return is_done, steps


def _gaps_alone(llm: LLM) -> list[float]:
    """Seconds between tokens of decoders alone; a call's time is shared among what it draws."""
    with watched(llm) as events:
        while sum(e.num_decode_tokens / e.num_requests for e in events) < _ALONE_STEPS:
            time.sleep(0.005)
    alone = [(gap, e) for gap, e in _gaps(events[1:]) if _only_decodes(e)]
    return [gap * e.num_requests / e.num_decode_tokens for gap, e in alone]


def bench_short(llm: LLM, prompts: Prompts, num_tokens: int) -> None:
    def seconds() -> float:
        return median(first_token_seconds(llm, prompts.ids(64)) for _ in range(9))

    alone = seconds()
    decoders = [llm.engine.submit(prompts.ids(128), drawn(8000 - 128)) for _ in range(8)]
    for decoder in decoders:
        decoder.get()
    beside = seconds()
    long = llm.engine.submit(prompts.ids(num_tokens), drawn(1))
    behind = first_token_seconds(llm, prompts.ids(64))
    for handle in (*decoders, long):
        handle.cancel()
    say("short: first token of 64 tokens, alone", f"{alone * 1e3:8.1f} ms")
    say("short: beside 8 decoders", f"{beside * 1e3:8.1f} ms")
    say(f"short: behind a prompt of {num_tokens} tokens, too", f"{behind * 1e3:8.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--kv", default="auto", help="format of keys and values")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", default="prefix,mixed,gap,short")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--long", type=int, default=8000, help="tokens of the long prompt of gap")
    asked = parser.parse_args()
    benches: dict[str, Callable[[LLM, Prompts], None]] = {
        "prefix": lambda llm, prompts: bench_prefix(llm, prompts, asked.rounds),
        "mixed": lambda llm, prompts: bench_mixed(llm, prompts, asked.rounds),
        "gap": lambda llm, prompts: bench_gap(llm, prompts, asked.long, asked.rounds),
        "short": lambda llm, prompts: bench_short(llm, prompts, asked.long),
    }
    for name in asked.only.split(","):
        options = EngineOptions(max_running=_SLOTS)
        with LLM(
            asked.model,
            weights=asked.weights,
            threads=asked.threads,
            kv_cache_dtype=asked.kv,
            kv_cache_bytes=_KV_BYTES,
            engine=options,
        ) as llm:
            benches[name](llm, Prompts(llm.config.vocab_size))


if __name__ == "__main__":
    main()
