"""What the engine hands to a model and gets back; knows no request state and no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.kvcache import PrefixKey
from dashinfer_lab.sampling import SamplingState, TokenLogprobs

__all__ = ["Chunk", "ChunkResult", "LogitRows", "ModelRunner", "PromptScoring"]

LogitRows = Literal["none", "last", "all"]


@dataclass(frozen=True, slots=True)
class PromptScoring:
    """Log-probabilities wanted of a chunk's rows: `targets` follow its tokens, from the first on.

    num_logprobs: likeliest tokens beside each.  num_ids: as in `SamplingState`.
    """

    targets: Sequence[int]
    num_logprobs: int
    num_ids: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one request to compute in a step.

    start: position of the first.  page_table: physical pages covering [0, start + len(token_ids)).
    sampling: None where no token is to be drawn after the last one.
    scoring: with logit_rows "all"; log-probabilities then come instead of logits.
    decoding: the tokens follow a drawn one.  reaches_end: no known token is left to compute.
    stop_ids: drawn ids after which nothing is to be computed.
    num_shared: first tokens of the request that were found computed.
    prompt_length: tokens of the request's prompt.
    """

    request_id: int
    token_ids: Sequence[int]
    start: int
    page_table: Sequence[int]
    logit_rows: LogitRows
    sampling: SamplingState | None
    scoring: PromptScoring | None = None
    arrival_seconds: float = 0.0
    decoding: bool = False
    reaches_end: bool = False
    stop_ids: Sequence[int] = ()
    num_shared: int = 0
    prompt_length: int = 0


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """What a chunk gave. logits: float32 [rows, vocab] with logit_rows "all".

    finite: False where the request met NaN or infinity; the rest is then without meaning.
    error: why no token was drawn.  prompt_logprobs: one for each target of the chunk's scoring.
    """

    token_id: int | None = None
    logprobs: TokenLogprobs | None = None
    logits: NDArray[np.float32] | None = None
    finite: bool = True
    error: DashInferLabError | None = None
    prompt_logprobs: Sequence[TokenLogprobs] = ()


class ModelRunner(Protocol):
    """Computes steps; called from one thread only, which also closes it."""

    @property
    def max_tokens(self) -> int:
        """Tokens a step can hold."""
        ...

    @property
    def max_logit_rows(self) -> int:
        """Rows of logits a step can hold."""
        ...

    @property
    def num_pages(self) -> int:
        """Pages of the key/value cache."""
        ...

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        ...

    @property
    def vocab_size(self) -> int:
        """Ids the model knows: 0 to vocab_size - 1."""
        ...

    @property
    def context_length(self) -> int:
        """Positions the model knows."""
        ...

    @property
    def prefix_key(self) -> PrefixKey | None:
        """What pages depend on beside tokens; None where pages of one request serve no other."""
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Write what one page holds into another; never called without a `prefix_key`."""
        ...

    def step(self, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]:
        """Compute all chunks, one result for each, in order."""
        ...

    @property
    def max_walks(self) -> int:
        """Most tokens each request may draw in one `walk`; 1 where there is none."""
        ...

    def walk(self, chunks: Sequence[Chunk], most: int) -> Sequence[Sequence[ChunkResult]]:
        """Decode up to `most` tokens of every chunk; results of each walk, chunk by chunk.

        The page tables reach `most - 1` tokens beyond the chunks. Ends early where a chunk drew
        one of its stop ids, or met NaN or infinity, or somebody was in a `hurry`.
        """
        ...

    @property
    def held_up_seconds(self) -> float:
        """How long the interpreter kept the last step or walk waiting after it was computed."""
        ...

    def hurry(self, wanted: bool) -> None:
        """Whether walks should end with the tokens at work; any thread may say so."""
        ...

    def rest(self) -> bool:
        """Use about a millisecond in which nobody asks; whether there is more to do."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...
