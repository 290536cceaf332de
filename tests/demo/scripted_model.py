"""A model that says what a test wants, on the real engine: batched, cancelled, measured as any.

"say X" is answered with X, "count" with numbers until it is stopped, anything else by its echo.
Counting is slow: a browser that has to find a button finds it in time. `gate` holds every step up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dashinfer_lab.demo.shelf import Choice
from dashinfer_lab.engine import (
    Chunk,
    ChunkResult,
    Engine,
    EngineOptions,
    RequestHandle,
    RequestOptions,
)
from dashinfer_lab.errors import HubError
from dashinfer_lab.sampling import SamplingParams

END = 0
KV_REASON = {"en": "as the model scripts it", "zh": "（按脚本）"}
_SLOWER = 5
_ENDLESS = " ".join(str(number) for number in range(1, 3000))


class ScriptedRunner:
    """A token is a character; each request's answer follows from the end of its prompt."""

    page_size = 32
    num_pages = 4096
    max_tokens = 4096
    max_logit_rows = 64
    vocab_size = 0x110000
    context_length = 16384
    max_walks = 1
    held_up_seconds = 0.0
    prefix_key = None

    def __init__(self, seconds_per_step: float) -> None:
        self._seconds_per_step = seconds_per_step
        self._prompts: dict[int, list[int]] = {}
        self._drawn: dict[int, Iterable[int]] = {}
        self._counting: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.largest_batch = 0

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        self.gate.wait()
        is_slow = any(chunk.request_id in self._counting for chunk in chunks)
        time.sleep(self._seconds_per_step * (_SLOWER if is_slow else 1))
        self.largest_batch = max(self.largest_batch, len(chunks))
        return [self._result(chunk) for chunk in chunks]

    def walk(self, chunks: Sequence[Chunk], most: int) -> list[list[ChunkResult]]:
        raise AssertionError(f"{most} walks of {len(chunks)} were asked for, but one is the most")

    def copy_page(self, source: int, target: int) -> None:
        raise AssertionError(f"page {source} was to be copied into {target}, but none is shared")

    def hurry(self, wanted: bool) -> None:
        pass

    def rest(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def _result(self, chunk: Chunk) -> ChunkResult:
        if chunk.request_id not in self._drawn:
            self._prompts.setdefault(chunk.request_id, []).extend(chunk.token_ids)
        if chunk.sampling is None:
            return ChunkResult()
        if chunk.request_id not in self._drawn:
            prompt = "".join(map(chr, self._prompts[chunk.request_id]))
            message = prompt.rpartition("\x02")[2]
            if message.startswith("count"):
                self._counting.add(chunk.request_id)
            answer = [*map(ord, reply(message)), END]
            self._drawn[chunk.request_id] = iter(answer)
        return ChunkResult(next(iter(self._drawn[chunk.request_id])))


def reply(message: str) -> str:
    """What the model answers."""
    if message.startswith("say "):
        return message.removeprefix("say ")
    return _ENDLESS if message.startswith("count") else f"You said: {message}"


class CharacterDecoder:
    """Token 65 is "A"."""

    def __init__(self, *, skip_special_tokens: bool = True) -> None:
        del skip_special_tokens

    def push(self, token_id: int, /) -> str:
        return chr(token_id)

    def finish(self) -> str:
        return ""


class ScriptedLLM:
    """The façade's shape, as the page uses it; keeps the prompts it was given."""

    isa = "scripted"
    threads = 1
    config = SimpleNamespace(model_type="script", num_layers=1, context_length=16384)

    def __init__(
        self,
        choice: Choice,
        seconds_per_step: float = 0.01,
        options: EngineOptions | None = None,
    ) -> None:
        if choice.model.startswith("missing"):
            raise HubError(f"no model {choice.model!r}")
        self.choice = choice
        self.runner = ScriptedRunner(seconds_per_step)
        self.engine = Engine(self.runner, eos_ids=[END], decoder=CharacterDecoder, options=options)
        self.artifact = SimpleNamespace(
            directory=Path(f"{choice.model}-{choice.weights}"), metadata={"scheme": choice.weights}
        )
        asked = choice.kv_cache_dtype
        kv_format = "fp32" if asked == "auto" else asked
        self.kv_choice = SimpleNamespace(
            kv_format=kv_format, reason=lambda language: f"{kv_format} {KV_REASON[language]}"
        )
        self.sampling_defaults: dict[str, Any] = {}
        self.prompts: list[Any] = []
        self.params: list[SamplingParams] = []

    def submit(
        self, prompt: Any, params: SamplingParams, *, options: RequestOptions | None = None
    ) -> RequestHandle:
        messages: list[Mapping[str, str]] = [{"content": prompt}]
        if not isinstance(prompt, str):
            messages = prompt
        text = "".join(f"\x02{message['content']}" for message in messages)
        ids = [ord(each) for each in text]
        handle = self.engine.submit(ids, params, block=True, options=options)
        self.prompts.append(prompt)
        self.params.append(params)
        return handle

    def memory(self) -> SimpleNamespace:
        return SimpleNamespace(weight_bytes=1_000_000)

    def close(self) -> None:
        self.runner.gate.set()
        self.engine.close()
