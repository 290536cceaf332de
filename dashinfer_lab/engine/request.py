"""One request while it is in the engine; knows its tokens and pages, not the others.

               ┌─────────── preempt: pages freed, tokens kept ───────────┐
               ▼                      │                                  │
submit ──▶ QUEUED ──admit──▶ PREFILL ─┴─ last known token computed ──▶ DECODE ─┐
               │                │                                        ▲  │  └─ next token
               └──── cancel ────┴────────── stop, length, error, cancel ─┼──┤
                                                                         │  ▼
                                                                         └─ FINISHED (for good)
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashinfer_lab.engine.batch import Chunk, ChunkResult, LogitRows
from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.errors import DashInferLabError, EngineError
from dashinfer_lab.kvcache import PageTable, PrefixChain
from dashinfer_lab.sampling import SamplingState

__all__ = ["Request", "RequestState", "Span"]


class RequestState(enum.Enum):
    """Where a request stands."""

    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


_NEXT: Final = {
    RequestState.QUEUED: {RequestState.PREFILL, RequestState.FINISHED},
    RequestState.PREFILL: {RequestState.DECODE, RequestState.QUEUED, RequestState.FINISHED},
    RequestState.DECODE: {RequestState.QUEUED, RequestState.FINISHED},
    RequestState.FINISHED: set[RequestState](),
}


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of a request, and the rows of logits wanted of them."""

    start: int
    length: int
    logit_rows: LogitRows

    @property
    def end(self) -> int:
        """Position behind the last token."""
        return self.start + self.length

    @property
    def num_logit_rows(self) -> int:
        """Rows of logits a step must hold for it."""
        return {"none": 0, "last": 1, "all": self.length}[self.logit_rows]


class Request(ABC):
    """Tokens to compute and the pages they live in.

    The first `num_computed` of `token_ids` are in the cache. `max_computed` is the most that ever
    will be: what the pages must hold at last.
    leader: the request whose first `num_leading` tokens are this one's too.
    """

    def __init__(
        self,
        request_id: int,
        token_ids: Sequence[int],
        max_computed: int,
        arrival_seconds: float,
        options: RequestOptions | None = None,
        leader: Request | None = None,
    ) -> None:
        self.options: Final = options or RequestOptions()
        self.leader: Final = leader
        self.num_leading: Final = len(token_ids)
        self.prompt_length = len(token_ids)
        self.rank: tuple[float, int] = (arrival_seconds, request_id)
        self.chain: PrefixChain | None = None
        self.num_pages_kept = 0
        self.num_shared = 0
        self.num_cached_tokens = 0
        self.request_id: Final = request_id
        self.token_ids: Final = list(token_ids)
        self.max_computed: Final = max_computed
        self.arrival_seconds: Final = arrival_seconds
        self.first_scheduled_seconds: float | None = None
        self.state = RequestState.QUEUED
        self.num_computed = 0
        self.num_preemptions = 0
        self.pages: PageTable | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt's and the drawn ones."""
        return len(self.token_ids)

    @property
    def finished(self) -> bool:
        """Whether the request has given all it will give."""
        return self.state is RequestState.FINISHED

    def enter(self, state: RequestState) -> None:
        """Go to another state, where the drawing above allows it."""
        if state not in _NEXT[self.state]:
            raise EngineError(
                f"request {self.request_id} cannot go from {self.state.value} to {state.value}"
            )
        self.state = state

    @property
    def num_skippable(self) -> int:
        """First tokens whose keys and values suffice; the last one's logits are always wanted."""
        return self.num_tokens - 1

    @property
    def deadline_seconds(self) -> float:
        """When the request ends if it has not; never is infinity."""
        timeout = self.options.timeout_seconds
        return math.inf if timeout is None else self.arrival_seconds + timeout

    def admit(self, pages: PageTable, num_computed: int) -> None:
        """Take pages that hold `num_computed` tokens already, and more for all known tokens."""
        if not pages.grow_to(self.num_tokens):
            pages.release()
            raise EngineError(f"request {self.request_id} was admitted without room for its tokens")
        self.pages = pages
        self.num_computed = self.num_shared = num_computed
        if self.num_preemptions == 0:
            self.num_cached_tokens = num_computed
        self.enter(RequestState.PREFILL)

    def grow(self) -> bool:
        """Take pages for all known tokens, or none and say False where the pool cannot."""
        return self.pages is not None and self.pages.grow_to(self.num_tokens)

    def may_grow(self) -> bool:
        """Whether more pages will be needed than are owned."""
        return self.pages is not None and self.pages.num_tokens_capacity < self.max_computed

    def preempt(self) -> None:
        """Give the pages back and queue again; all known tokens will be computed anew."""
        self.enter(RequestState.QUEUED)
        self.release_pages()
        self.num_preemptions += 1

    def leave(self) -> None:
        """Finish and give the pages back; `tell_end` then lets the caller hear of it."""
        self.enter(RequestState.FINISHED)
        self.release_pages()

    def release_pages(self) -> None:
        """Give the pages back; what they held counts as not computed."""
        if self.pages is not None:
            self.pages.release()
            self.pages = None
        self.num_computed = 0
        self.num_pages_kept = 0

    @property
    def tokens_left(self) -> int:
        """Most tokens that may still be drawn; none for a request that draws none."""
        return 0

    @property
    def stop_ids(self) -> Sequence[int]:
        """Drawn ids after which the request ends."""
        return ()

    @property
    def read_as_it_comes(self) -> bool:
        """Whether somebody looks at tokens before the last."""
        return True

    @property
    def waits_for_end(self) -> bool:
        """Whether nobody looks at a token before the last, nor may a text end it earlier."""
        return False

    def reach(self, num_ahead: int) -> bool:
        """Take pages for tokens beyond the known ones, or none and say False."""
        return self.pages is not None and self.pages.grow_to(self.num_tokens + num_ahead)

    def chunk(self, span: Span, num_ahead: int = 0) -> Chunk:
        """Write a span in the form the model takes, with the pages of `num_ahead` more tokens."""
        pages = () if self.pages is None else self.pages.covering(span.end + num_ahead)
        tokens = self.token_ids[span.start : span.end]
        return Chunk(
            self.request_id,
            tokens,
            span.start,
            pages,
            span.logit_rows,
            self.sampling(span),
            arrival_seconds=self.arrival_seconds,
            decoding=self.state is RequestState.DECODE,
            reaches_end=span.end == self.num_tokens,
            stop_ids=self.stop_ids,
            num_shared=self.num_shared,
            prompt_length=self.prompt_length,
        )

    @abstractmethod
    def plan(self, max_tokens: int, max_rows: int) -> Span | None:
        """Choose the next span within both limits; None where they leave no room."""

    @abstractmethod
    def sampling(self, span: Span) -> SamplingState | None:
        """How to draw the token after a span; None where there is none to draw."""

    @abstractmethod
    def accept(self, span: Span, result: ChunkResult, now_seconds: float) -> None:
        """Take what a span gave, which is computed by now; may finish."""

    @abstractmethod
    def fail(self, error: DashInferLabError, now_seconds: float) -> None:
        """Finish with an error; what was given stays given."""

    @abstractmethod
    def cancel(self, now_seconds: float) -> None:
        """Finish because the caller has no more use for it."""

    @abstractmethod
    def tell_end(self) -> None:
        """Let the caller hear that, and how, it finished."""
