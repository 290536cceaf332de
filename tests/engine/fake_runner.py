"""A model without arithmetic: the next token is a hash of the history found through the pages.

It keeps the tokens themselves in its pages, so that a wrong page table, a page shared by mistake or
a token left out gives another answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine import Chunk, ChunkResult
from dashinfer_lab.kvcache import PrefixKey
from dashinfer_lab.sampling import SamplingState, TokenLogprobs

STALE = -1


class FakeRunner:
    """Counts what it sees; `before_step` may block or raise; `poison` is a token that makes NaN."""

    page_size = 4
    held_up_seconds = 0.0
    prefix_key = PrefixKey("fake", "none", "tokens", 1.0)

    def __init__(
        self,
        *,
        num_pages: int = 64,
        max_tokens: int = 32,
        max_logit_rows: int = 16,
        vocab_size: int = 97,
        context_length: int = 100,
        poison: int | None = None,
        max_walks: int = 1,
        before_step: Callable[[Sequence[Chunk]], None] = lambda chunks: None,
    ) -> None:
        self.num_pages = num_pages
        self.max_tokens = max_tokens
        self.max_logit_rows = max_logit_rows
        self.vocab_size = vocab_size
        self.context_length = context_length
        self.poison = poison
        self.max_walks = max_walks
        self.before_step = before_step
        self.batches: list[list[Chunk]] = []
        self.threads: set[int] = set()
        self.num_closed = 0
        self.num_copied = 0
        self.hurried = False
        self.num_rests = 0
        self.moments_of_rest = 0
        self._pages = np.full((num_pages, self.page_size), STALE)

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        self.before_step(chunks)
        self.threads.add(threading.get_ident())
        self.batches.append(list(chunks))
        self._check_limits(chunks)
        for chunk in chunks:
            for position, token_id in enumerate(chunk.token_ids, start=chunk.start):
                page = chunk.page_table[position // self.page_size]
                self._pages[page, position % self.page_size] = token_id
        return [self._result(chunk) for chunk in chunks]

    def walk(self, chunks: Sequence[Chunk], most: int) -> list[list[ChunkResult]]:
        assert 1 < most <= self.max_walks
        walks = [self.step([_shortened(chunk, most - 1, self.page_size) for chunk in chunks])]
        for ahead in range(1, most):
            drawn = [result.token_id for result in walks[-1]]
            if None in drawn or any(t in c.stop_ids for t, c in zip(drawn, chunks, strict=True)):
                break
            if self.hurried:
                break
            following = [
                replace(chunk, token_ids=[token_id], start=chunk.start + ahead, sampling=later)
                for chunk, token_id in zip(chunks, drawn, strict=True)
                if (state := chunk.sampling) is not None
                and (later := replace(state, position=state.position + ahead))
            ]
            rest = most - 1 - ahead
            walks.append(self.step([_shortened(c, rest, self.page_size) for c in following]))
        return walks

    def copy_page(self, source: int, target: int) -> None:
        self.num_copied += 1
        self._pages[target] = self._pages[source]

    def hurry(self, wanted: bool) -> None:
        self.hurried = wanted

    def rest(self) -> bool:
        self.num_rests += 1
        return self.num_rests < self.moments_of_rest

    def close(self) -> None:
        self.num_closed += 1
        self.threads.add(threading.get_ident())

    def answer(
        self, prompt: Sequence[int], num_tokens: int, sampling: SamplingState | None = None
    ) -> list[int]:
        """What any engine must draw after a prompt, whatever the batch."""
        history = list(prompt)
        for _ in range(num_tokens):
            history.append(self._draw(history, sampling))
        return history[len(prompt) :]

    def logits(self, history: Sequence[int]) -> NDArray[np.float32]:
        """The row after a history."""
        seed = int.from_bytes(_digest(history), "little")
        return np.random.default_rng(seed).standard_normal(self.vocab_size).astype(np.float32)

    def _result(self, chunk: Chunk) -> ChunkResult:
        end = chunk.start + len(chunk.token_ids)
        assert len(chunk.page_table) == -(-end // self.page_size)
        history = [int(t) for t in self._pages[list(chunk.page_table)].ravel()[:end]]
        if self.poison in history:
            return ChunkResult(finite=False)
        if chunk.logit_rows == "all" and chunk.scoring is None:
            ends = range(chunk.start + 1, end + 1)
            return ChunkResult(logits=np.stack([self.logits(history[:e]) for e in ends]))
        scored: list[TokenLogprobs] = []
        if chunk.scoring is not None:
            assert len(chunk.scoring.targets) <= len(chunk.token_ids)
            for e, target in enumerate(chunk.scoring.targets, start=chunk.start + 1):
                scored.append(self.rated(history[:e], target, chunk.scoring.num_logprobs))
        if chunk.sampling is None:
            return ChunkResult(prompt_logprobs=scored)
        assert chunk.sampling.position == end
        token_id = self._draw(history, chunk.sampling)
        count, logprobs = chunk.sampling.num_logprobs, None
        if count is not None:
            logprobs = self.rated(history, token_id, count)
        return ChunkResult(token_id, logprobs, prompt_logprobs=scored)

    def _draw(self, history: Sequence[int], sampling: SamplingState | None) -> int:
        salt = b""
        if sampling is not None and sampling.temperature > 0:
            salt = f"{sampling.seed} {sampling.choice} {len(history)}".encode()
        return int.from_bytes(_digest(history, salt), "little") % self.vocab_size

    def rated(self, history: Sequence[int], token_id: int, count: int) -> TokenLogprobs:
        """What the row after a history says of a token and of the likeliest."""
        row = self.logits(history)
        logprobs = row - np.log(np.exp(row).sum())
        order = np.argsort(-logprobs, kind="stable")
        rank = int(np.flatnonzero(order == token_id)[0]) + 1
        top = tuple((int(i), float(logprobs[i])) for i in order[:count])
        return TokenLogprobs(token_id, float(logprobs[token_id]), rank, top)

    def _check_limits(self, chunks: Sequence[Chunk]) -> None:
        assert chunks
        assert len({chunk.request_id for chunk in chunks}) == len(chunks)
        assert sum(len(chunk.token_ids) for chunk in chunks) <= self.max_tokens
        rows = {"none": 0, "last": 1}
        assert self.max_logit_rows >= sum(
            rows.get(chunk.logit_rows, len(chunk.token_ids)) for chunk in chunks
        )


def _shortened(chunk: Chunk, num_ahead: int, page_size: int) -> Chunk:
    """The chunk with the pages of its own tokens, checked to have those of `num_ahead` more."""
    end = chunk.start + len(chunk.token_ids)
    assert len(chunk.page_table) >= -(-(end + num_ahead) // page_size)
    return replace(chunk, page_table=chunk.page_table[: -(-end // page_size)])


def _digest(history: Sequence[int], salt: bytes = b"") -> bytes:
    return blake2b(np.asarray(history, np.int64).tobytes() + salt, digest_size=8).digest()


class LetterDecoder:
    """Token 0 is "A", 1 is "B", ...; with `hold` it lags that many letters behind."""

    def __init__(self, *, skip_special_tokens: bool = True, hold: int = 0) -> None:
        del skip_special_tokens
        self._hold = hold
        self._held = ""

    def push(self, token_id: int, /) -> str:
        self._held += chr(ord("A") + token_id)
        cut = max(len(self._held) - self._hold, 0)
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        text, self._held = self._held, ""
        return text


class Gate:
    """Lets a runner's steps through one by one; use as `before_step`."""

    def __init__(self) -> None:
        self._tickets = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self._open = False

    def __call__(self, chunks: Sequence[Chunk]) -> None:
        self._arrived.release()
        if not self._open:
            assert self._tickets.acquire(timeout=30)

    def wait_for_step(self) -> None:
        """Block until a step is about to compute."""
        assert self._arrived.acquire(timeout=30)

    def let_through(self) -> None:
        """Let one step compute."""
        self._tickets.release()

    def open(self) -> None:
        """Let all steps compute from now on."""
        self._open = True
        self._tickets.release()
