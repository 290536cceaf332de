"""A model that answers from a list, so that the command line is tested alone."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import dashinfer_lab
from dashinfer_lab.cli import main
from dashinfer_lab.engine.auto_kv import KvChoice
from dashinfer_lab.events import RequestMetrics
from dashinfer_lab.outputs import CompletionOutput, FinishReason, RequestOutput, TokenEvent
from dashinfer_lab.sampling import SamplingParams

WORDS = [" Paris", ",", " a", " city"]


def metrics(num_prompt_tokens: int, num_output_tokens: int) -> RequestMetrics:
    """First token after 0.25 s, then ten tokens a second."""
    last = 0.25 + 0.1 * (num_output_tokens - 1)
    return RequestMetrics(0.0, 0.0, 0.25, last, last, num_prompt_tokens, num_output_tokens, 0)


@dataclass
class FakeHandle:
    """An answer word by word; cancelled, it ends with the next event, as the engine's do."""

    ended_by: ClassVar[FinishReason] = "stop"
    words: list[str]
    interrupt_at: int | None = None
    cancelled: bool = False
    finish_reason: FinishReason | None = None
    metrics: RequestMetrics | None = None

    def cancel(self) -> None:
        self.cancelled = True

    def __iter__(self) -> Iterator[TokenEvent]:
        for position, word in enumerate(self.words):
            if position == self.interrupt_at:
                signal.raise_signal(signal.SIGINT)
            if self.cancelled:
                break
            yield TokenEvent(position, word)
        self.finish_reason = "cancelled" if self.cancelled else self.ended_by
        self.metrics = metrics(3, len(self.words))
        yield TokenEvent(None, "", finish_reason=self.finish_reason, metrics=self.metrics)


CHOSEN = KvChoice("fp32", "fits", {"tokens": 1024, "size": 10, "exact": 10, "room": 100})


@dataclass
class FakeLLM:
    """The façade's shape; records what it was asked."""

    model: str
    weights: str = "auto"
    threads: int | None = None
    kv_cache_dtype: str = "auto"
    context_length: int | None = None
    progress: object = True
    chat_template: object = None
    autotune: object = False
    tokenizer: Any = None
    weights_reason: str = "a16w8: 3.8 times fewer bytes"
    kv_choice: KvChoice = CHOSEN
    schedules: Any = field(default=None, init=False)
    artifact: Any = field(
        default_factory=lambda: SimpleNamespace(
            metadata={"scheme": "a16w8:64"},
            tensors={},
            config=SimpleNamespace(experts=None, vocab_size=97),
        )
    )
    sampling_defaults: dict[str, Any] = field(default_factory=dict)
    isa: str = "fake-isa"
    asked: list[tuple[object, SamplingParams]] = field(default_factory=list)
    closed: bool = False
    config: Any = field(default_factory=lambda: SimpleNamespace(vocab_size=97, context_length=1024))
    made: list[FakeLLM] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    interrupt_at: int | None = None
    engine: FakeEngine = field(default_factory=lambda: FakeEngine())

    def __enter__(self) -> FakeLLM:
        self.threads = self.threads or 2
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def stream(self, prompt: object, params: SamplingParams) -> Iterator[str]:
        self.asked.append((prompt, params))
        yield from WORDS[: params.max_tokens]

    def submit(self, messages: object, params: SamplingParams) -> FakeHandle:
        self.asked.append((messages, params))
        if self.errors:
            raise self.errors.pop()
        handle = FakeHandle(WORDS[: params.max_tokens], self.interrupt_at)
        self.interrupt_at = None
        return handle

    def profile(self, *prompt: object, **options: object) -> FakeProfile:
        return FakeProfile(prompt, options)

    def generate(
        self, prompts: list[Any], params: SamplingParams | list[SamplingParams]
    ) -> list[RequestOutput]:
        each = params if isinstance(params, list) else [params] * len(prompts)
        asked = list(zip(prompts, each, strict=True))
        self.asked.extend(asked)
        for subscriber in self.engine.subscribers:
            for event in self.engine.events:
                subscriber(event)
        return [self._output(prompt, params.max_tokens or 16) for prompt, params in asked]

    def memory(self) -> SimpleNamespace:
        return SimpleNamespace(
            weight_bytes=1000, weight_bytes_per_token=900, kv_bytes=64, kv_bytes_per_position=2
        )

    def _output(self, prompt: Any, num_tokens: int) -> RequestOutput:
        ids = prompt["prompt_token_ids"] if isinstance(prompt, dict) else [1, 2, 3]
        choice = CompletionOutput(
            0, "".join(WORDS), list(range(num_tokens)), finish_reason="length"
        )
        return RequestOutput("0", None, ids, [choice], metrics=metrics(len(ids), num_tokens))


@dataclass
class FakeEngine:
    """Tells its subscribers of the same events with every answer."""

    events: list[Any] = field(default_factory=list)
    subscribers: list[Callable[[Any], None]] = field(default_factory=list)

    def subscribe(self, subscriber: Callable[[Any], None]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)


@dataclass(frozen=True)
class FakeProfile:
    """Tells what was profiled."""

    prompt: tuple[object, ...]
    options: dict[str, object]

    def as_dict(self) -> dict[str, object]:
        return {"prompt": [str(each) for each in self.prompt], "options": sorted(self.options)}

    def report(self, lang: str) -> str:
        return f"*** forward *** {lang}"

    def trace(self) -> dict[str, object]:
        return {"traceEvents": []}

    def save(self, path: Path, lang: str) -> Path:
        path.write_text(lang, encoding="utf-8")
        return path


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests, the locale is the same."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@pytest.fixture
def known_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roof that is not measured."""
    bench = pytest.importorskip("jit_kernels.bench")
    meter = SimpleNamespace(
        bandwidth=lambda: (3e-5, 2e-5),
        fma_peak=lambda: 3.0,
        readings=lambda: nullcontext(lambda: 2e-5),
    )
    monkeypatch.setattr(bench, "RoofMeter", lambda threads: meter)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeLLM]:
    """The models that the command under test has made."""
    made: list[FakeLLM] = []

    def make(*args: Any, **kwargs: Any) -> FakeLLM:
        made.append(FakeLLM(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(dashinfer_lab, "LLM", make, raising=False)
    monkeypatch.setattr(dashinfer_lab, "SamplingParams", SamplingParams, raising=False)
    return made


class Terminal(io.StringIO):
    """A person who types these lines, and at "^C" interrupts."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:
        line = super().readline(size)
        if line == "^C\n":
            signal.raise_signal(signal.SIGINT)
        return line


Typed = Callable[[io.StringIO], None]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Give the command under test its stdin."""
    return lambda stdin: monkeypatch.setattr(sys, "stdin", stdin)


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code and what it wrote."""

    code: int
    out: str
    err: str


Shell = Callable[..., Ended]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run `dashinfer-lab` with the given arguments."""

    def run(*arguments: str) -> Ended:
        code = main(arguments)
        return Ended(code, *capsys.readouterr())

    return run
