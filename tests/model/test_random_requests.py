"""Many random requests on a tiny model whose cache is too small for them: none disturbs another."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.convert import Artifact
from dashinfer_lab.engine import EngineOptions, RequestHandle, RequestOptions
from dashinfer_lab.errors import DeadlineError, RequestError, SamplingError
from tests.model.tiny_artifact import tiny_artifact, tiny_llama

NUM_IN_FLIGHT = 24
MOST_NEW = 40
CACHE_BYTES = 2**19  # 32 pages for some 24 requests of up to 13 pages each


@dataclass(frozen=True)
class Served:
    """A model's weights and windows, and how its keys and values are kept."""

    scheme: str
    kv_dtype: str
    cache_bytes: int = CACHE_BYTES
    windows: tuple[int | None, ...] = ()

    def artifact(self, directory: Path) -> Artifact:
        return tiny_artifact(directory, self.scheme, tiny_llama(windows=self.windows))


# Some 32 pages each.
SERVED = {
    "fp32": Served("a16w8", "fp32"),
    "int8 within a window": Served("a16w8", "int8", CACHE_BYTES // 3, (37, None)),
    "bf16": Served("fp32", "bf16", CACHE_BYTES // 2),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(served, id=name, marks=[pytest.mark.slow] if name == "bf16" else [])
        for name, served in SERVED.items()
    ],
)
def served(request: pytest.FixtureRequest) -> Served:
    return request.param


@pytest.fixture(scope="module")
def artifact(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return served.artifact(tmp_path_factory.mktemp("artifacts") / "tiny")


class Solo:
    """What each prompt is answered when it is alone, nothing is shared, and one thread computes."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._known: dict[tuple[int, ...], list[int]] = {}

    def answer(self, prompt: list[int], params: SamplingParams, choice: int) -> list[int]:
        if not params.greedy:
            return self._drawn(prompt, params, choice)
        key = tuple(prompt)
        if key not in self._known:
            most = SamplingParams(temperature=0, max_tokens=MOST_NEW)
            self._known[key] = self._drawn(prompt, most, choice)
        return self._known[key][: params.max_tokens]

    def _drawn(self, prompt: list[int], params: SamplingParams, choice: int) -> list[int]:
        handle = self._llm.engine.submit_choices(prompt, params)[choice]
        return handle.completion(timeout=60).token_ids


@pytest.fixture(scope="module")
def solo(served: Served, artifact: Artifact) -> Iterator[Solo]:
    options = EngineOptions(enable_prefix_caching=False)
    with LLM(artifact.directory, threads=1, engine=options, kv_cache_dtype=served.kv_dtype) as llm:
        yield Solo(llm)


@dataclass
class Asked:
    handle: RequestHandle
    prompt: list[int]
    params: SamplingParams
    cancelled: bool = False


def fail_at_the_third(output: list[int], logits: Any) -> Any:
    """A logits processor."""
    if len(output) == 2:
        raise ValueError("a fault of its own")
    return logits


class Crowd:
    """Asks at random and holds every answer to its solo run."""

    def __init__(self, llm: LLM, solo: Solo, seed: int) -> None:
        self.random = random.Random(seed)
        self.num_refused = 0
        self.num_checked = 0
        self.num_failed = 0
        self._llm = llm
        self._solo = solo
        self._open: list[Asked] = []
        draw = self.random.randrange
        heads = [[draw(331) for _ in range(length)] for length in (5, 33, 64, 200)]
        self._prompts = [
            [*self.random.choice(heads), *(draw(331) for _ in range(draw(1, 170)))]
            for _ in range(80)
        ]

    def ask(self) -> None:
        while len(self._open) >= NUM_IN_FLIGHT:
            self.check(self._open.pop(self.random.randrange(len(self._open))))
        if self.random.random() < 0.1:
            self.ask_badly()
            return
        prompt = self.random.choice(self._prompts)
        greedy = self.random.random() < 0.8
        params = SamplingParams(
            temperature=0 if greedy else 1.0,
            n=1 if greedy else self.random.choice([1, 1, 3]),
            repetition_penalty=1.0 if greedy else self.random.choice([1.0, 1.2]),
            seed=self.random.randrange(2**32),
            max_tokens=self.random.randint(1, MOST_NEW),
            logits_processors=[fail_at_the_third] if self.random.random() < 0.03 else None,
        )
        options = RequestOptions(
            priority=self.random.choice([0, 0, 0, 1, -1]),
            timeout_seconds=1e-4 if self.random.random() < 0.03 else None,
            cache_salt=self.random.choice([None, None, "salt"]),
        )
        submit = self._llm.engine.submit_choices
        for handle in submit(prompt, params, options=options, block=True):
            self._open.append(Asked(handle, prompt, params))
        if self.random.random() < 0.15:
            asked = self.random.choice(self._open)
            asked.cancelled = True
            asked.handle.cancel()

    def ask_badly(self) -> None:
        submit, some = self._llm.engine.submit, self.random.choice(self._prompts)
        bad = [
            lambda: submit([]),
            lambda: submit([*some, 331]),
            lambda: submit([-1, *some]),
            lambda: submit(some * 200),
            lambda: submit(some, SamplingParams(max_tokens=10**6)),
            lambda: submit(some, SamplingParams(temperature=float("nan"))),
            lambda: submit(some, SamplingParams(max_tokens=0)),
            lambda: submit(some, options=RequestOptions(priority=1.5)),  # type: ignore[arg-type]
        ]
        with pytest.raises(RequestError):
            self.random.choice(bad)()
        self.num_refused += 1

    def check(self, asked: Asked) -> None:
        output = asked.handle.completion(timeout=60)
        faulty = asked.params.logits_processors
        params = replace(asked.params, logits_processors=None)
        expected = self._solo.answer(asked.prompt, params, asked.handle.choice)
        got = output.token_ids
        if isinstance(output.error, SamplingError):
            assert faulty
            assert got == expected[:2]
            self.num_failed += 1
            return
        if output.finish_reason == "length":
            assert got == expected
            assert not faulty or len(got) < 3
            self.num_checked += 1
            return
        assert asked.cancelled or isinstance(output.error, DeadlineError)
        assert got == expected[: len(got)]

    def check_all(self) -> None:
        while self._open:
            self.check(self._open.pop())


def serve(
    served: Served, artifact: Artifact, solo: Solo, num_requests: int, seed: int
) -> tuple[Crowd, list[int]]:
    """Resident bytes after each quarter come with the crowd."""
    before = threading.active_count()
    resident: list[int] = []
    options = EngineOptions(max_running=12, max_chunk_tokens=50)
    with LLM(
        artifact.directory,
        threads=2,
        kv_cache_bytes=served.cache_bytes,
        kv_cache_dtype=served.kv_dtype,
        engine=options,
    ) as llm:
        crowd = Crowd(llm, solo, seed)
        for _ in range(4):
            for _ in range(num_requests // 4):
                crowd.ask()
            crowd.check_all()
            resident.append(psutil.Process().memory_info().rss)
        llm.logits([1])  # all steps before it are done with
        stats = llm.engine.stats()
        assert (stats.num_running, stats.num_queued, stats.num_pages_used) == (0, 0, 0)
        assert stats.num_preempted > 0
        assert stats.num_prefix_hits > 0
        assert stats.num_expired > 0 or num_requests < 1000
    assert threading.active_count() == before
    return crowd, resident


def test_random_requests_are_answered_as_if_alone(
    served: Served, artifact: Artifact, solo: Solo
) -> None:
    crowd, _ = serve(served, artifact, solo, num_requests=160, seed=1)

    assert crowd.num_checked > 80
    assert crowd.num_failed > 0
    assert crowd.num_refused > 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_thousand_random_requests_leave_nothing_behind(
    served: Served, artifact: Artifact, solo: Solo
) -> None:
    crowd, resident = serve(served, artifact, solo, num_requests=2000, seed=2)

    assert crowd.num_checked > 1000
    assert crowd.num_refused > 100
    # Solo answers of 80 prompts and 400 draws are a few hundred kB; the rest is the allocator's.
    assert resident[-1] - resident[0] < 30e6
