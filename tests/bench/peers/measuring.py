"""The same work for every engine, one after the other in turns; medians of what they took."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from tests.bench.peers.environments import LeftOutError

__all__ = ["FIGURES", "Asked", "Measured", "Plan", "measure"]

FIGURES = ("prefill", "decode_1", "decode_batch")


@dataclass(frozen=True)
class Plan:
    """Tokens of the work, and how often it is done; a first time warms up."""

    prefill_tokens: int = 512
    prompt_tokens: int = 128
    new_tokens: int = 128
    batch: int = 8
    repetitions: int = 5
    seconds_per_answer: float = 600

    @property
    def max_length(self) -> int:
        return max(self.prefill_tokens, self.prompt_tokens + self.new_tokens) + 8


class Asked(Protocol):
    """A worker, as far as measuring goes."""

    def ask(self, seconds: float, **request: object) -> dict[str, Any]: ...


@dataclass
class Measured:
    """Tokens a second in every repetition; `first_ids`: first token of each prompt of the first."""

    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    first_ids: list[int] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        return {name: median(rates) for name, rates in self.rates.items()}


def measure(
    workers: Mapping[str, Asked],
    plan: Plan,
    vocab_size: int,
    left_out: Callable[[str, str], None],
) -> dict[str, Measured]:
    """Ask every worker for each piece of work before the next piece, in an order that rotates.

    A worker that fails is told to `left_out` by name, with the reason, and asked no more.
    """
    measured = {name: Measured() for name in workers}
    for repetition in range(-1, plan.repetitions):
        prompts = _Prompts(vocab_size, repetition)
        for figure, request in _work(plan, prompts):
            for name in _rotated(list(measured), repetition):
                try:
                    answer = workers[name].ask(plan.seconds_per_answer, **request)
                except LeftOutError as error:
                    del measured[name]
                    left_out(name, str(error))
                    continue
                if repetition < 0:
                    measured[name].first_ids += [ids[0] for ids in answer.get("ids", [])]
                else:
                    tokens = answer.get("tokens", plan.prefill_tokens)
                    measured[name].rates[figure].append(tokens / answer["seconds"])
    return measured


def _work(plan: Plan, prompts: _Prompts) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "prefill", {"task": "prefill", "prompt": prompts.ids(plan.prefill_tokens)}
    for figure, batch in (("decode_1", 1), ("decode_batch", plan.batch)):
        asked = [prompts.ids(plan.prompt_tokens) for _ in range(batch)]
        yield figure, {"task": "decode", "prompts": asked, "new_tokens": plan.new_tokens}


def _rotated(names: Sequence[str], by: int) -> list[str]:
    at = by % max(1, len(names))
    return [*names[at:], *names[:at]]


class _Prompts:
    """Random ids: the same for every engine, others in every repetition."""

    def __init__(self, vocab_size: int, repetition: int) -> None:
        self._random = random.Random(f"repetition {repetition}")  # of -1 and 1 it makes one seed
        self._vocab_size = vocab_size

    def ids(self, length: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(length)]
