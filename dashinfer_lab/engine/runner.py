"""Runs steps on compiled kernels: chunks in, tokens and logits out; one foreign call a step.

Knows programs and memory; knows no request state and no scheduling.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.engine.batch import Chunk, ChunkResult
from dashinfer_lab.engine.cache_memory import CacheMemory
from dashinfer_lab.engine.processed import ProcessedDraws
from dashinfer_lab.engine.step_inputs import MAX_WALKS, AttentionShape, RotationTables, StepInputs
from dashinfer_lab.errors import EngineError, SamplingError
from dashinfer_lab.kvcache import PrefixKey
from dashinfer_lab.lower import Memory, ProgramPlan, instantiate
from dashinfer_lab.profiling import ChunkSpan, ProfileRecorder, StepShape, StepTimes
from dashinfer_lab.sampling import SamplingState
from jit_kernels.kernels.advance import STOP_IDS
from jit_kernels.kernels.attention import partial_floats, query_tile
from jit_kernels.kernels.attention_items import SEGMENT_SIZE
from jit_kernels.kv_layout import PAGE_SIZE, block_bytes
from jit_kernels.runtime.buffers import give_back_freed
from jit_kernels.runtime.threads import Pool

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["CompiledRunner", "MemoryUse", "page_bytes"]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of a running model; `kv_bytes` is reserved, and touched page by page."""

    weight_bytes: int
    kv_bytes: int
    arena_bytes: int
    step_bytes: int


def page_bytes(plan: ProgramPlan) -> int:
    """Bytes of one page of the key/value cache, all layers."""
    size = block_bytes(plan.limits.kv_format, plan.head_dim)
    return plan.num_layers * plan.num_kv_heads * size


class CompiledRunner:
    """A `ModelRunner` for one artifact: its program, arena, cache pages and worker pool.

    The pool belongs to the runner, which closes it.
    """

    def __init__(
        self,
        artifact: Artifact,
        plan: ProgramPlan,
        pool: Pool,
        *,
        num_pages: int,
        context_length: int,
        chaos_seed: int | None = None,
    ) -> None:
        heads_per_kv = plan.num_heads // plan.num_kv_heads
        self.plan = plan
        self.max_tokens = plan.limits.max_tokens
        self.max_logit_rows = plan.limits.max_logit_rows
        self.num_pages = num_pages
        self.page_size = PAGE_SIZE
        self.vocab_size = plan.vocab_size
        self.context_length = context_length
        self._artifact = artifact
        self._pool = pool
        layer_bytes = page_bytes(plan) // plan.num_layers
        self._cache_memory = CacheMemory(plan.num_layers, num_pages, layer_bytes)
        self.cache = self._cache_memory.pages
        self.inputs = StepInputs(
            max_tokens=self.max_tokens,
            max_logit_rows=self.max_logit_rows,
            max_pages=-(-context_length // PAGE_SIZE) + 1,
            logits_stride=plan.logits_stride,
            vocab_size=self.vocab_size,
            attention=AttentionShape(
                page_size=PAGE_SIZE,
                segment_size=SEGMENT_SIZE,
                query_tile=query_tile(heads_per_kv),
                num_kv_heads=plan.num_kv_heads,
                partial_floats=plan.num_kv_heads * partial_floats(plan.head_dim, heads_per_kv),
                num_threads=pool.num_threads,
            ),
            rotation=RotationTables(artifact.config.context_length, artifact.config.ntk_length),
        )
        self._processed: ProcessedDraws | None = None
        first_row = artifact.config.first_rotary_row(context_length)
        self._memory = Memory(plan, artifact, self.inputs.arrays(), self.cache, first_row)
        self._recorders: tuple[ProfileRecorder, ...] = ()
        self._recorders_change = threading.Lock()
        self.program = instantiate(plan, self._memory, pool, chaos_seed=chaos_seed)

    @property
    def memory_use(self) -> MemoryUse:
        """What the model takes; weights are mapped from the file and counted once."""
        step = sum(array.nbytes for array in self.inputs.arrays().values())
        arena = self._memory.scratch_bytes
        return MemoryUse(self._artifact.num_bytes, self.cache.nbytes, arena, step)

    @property
    def prefix_key(self) -> PrefixKey:
        """What pages depend on beside tokens."""
        metadata = self._artifact.metadata
        return PrefixKey(
            model=str(self._artifact.directory),
            scheme=metadata.get("scheme", ""),
            kv_format=self.plan.limits.kv_format,
            rotary_base=self._artifact.config.rope.theta,
            ntk_length=self._artifact.config.ntk_length,
        )

    def copy_page(self, source: int, target: int) -> None:
        """Write what one page holds into another, all layers."""
        self._cache_memory.copy(source, target)

    def step(self, chunks: Sequence[Chunk]) -> list[ChunkResult]:
        """Compute all chunks, one result for each, in order."""
        if self._recorders:
            spans = tuple(_span(chunk) for chunk in chunks)
            # Read once: another thread may end a recording.
            recorders = [each for each in self._recorders if each.wants(spans)]
            if recorders:
                return self._profiled_step(chunks, spans, recorders)
        rows = self._fill(chunks)
        self.program.run()
        return self._results(chunks, rows)

    @property
    def max_walks(self) -> int:
        """Most tokens each request may draw in one `walk`."""
        # The kernel that goes on to the next token knows positions, not rows of rotary tables.
        return MAX_WALKS if self._artifact.config.num_rotary_stages == 1 else 1

    def walk(self, chunks: Sequence[Chunk], most: int) -> list[list[ChunkResult]]:
        """Decode up to `most` tokens of every chunk in one foreign call; results walk by walk."""
        if most == 1 or self._recorders or not all(map(_walks, chunks)):
            return [self.step(chunks)]
        rows = self._fill(chunks)
        self.inputs.repeat(chunks, most)
        self.program.run()
        drawn = self.inputs.tokens_of_walks[: self.inputs.walks[1] - 1, : len(chunks)].tolist()
        earlier = [[ChunkResult(token_id) for token_id in walk] for walk in drawn]
        return [*earlier, self._results(chunks, rows)]

    @property
    def held_up_seconds(self) -> float:
        """How long the interpreter kept the last step or walk waiting after it was computed."""
        return self._pool.held_up_seconds

    def hurry(self, wanted: bool) -> None:
        """Whether a walk should end with the tokens at work; any thread may say so."""
        self.inputs.walks[2] = wanted

    def start_recording(self, recorder: ProfileRecorder) -> None:
        """Time the steps that `recorder` wants, from the next one on."""
        with self._recorders_change:
            self._recorders = (*self._recorders, recorder)

    def stop_recording(self, recorder: ProfileRecorder) -> None:
        """Tell `recorder` no more; nothing if it is not told anyway."""
        with self._recorders_change:
            self._recorders = tuple(each for each in self._recorders if each is not recorder)

    def _profiled_step(
        self,
        chunks: Sequence[Chunk],
        spans: tuple[ChunkSpan, ...],
        recorders: Sequence[ProfileRecorder],
    ) -> list[ChunkResult]:
        """A step on the walker that times every operation."""
        begin = monotonic()
        rows = self._fill(chunks)
        filled = monotonic()
        profile = self.program.profile()
        computed = monotonic()
        results = self._results(chunks, rows)
        end = monotonic()
        step = StepTimes(
            shape=StepShape(spans, int(self.inputs.num_logit_rows[0]), self._num_partials()),
            op_seconds=np.array(profile.seconds, np.float64),
            begin_seconds=begin,
            input_seconds=filled - begin,
            compute_seconds=computed - filled,
            result_seconds=end - computed,
            wall_seconds=end - begin,
        )
        for recorder in recorders:
            recorder.add(step)
            if recorder.complete:
                self.stop_recording(recorder)
        return results

    def _num_partials(self) -> int:
        """Segments of attention that are computed apart and merged."""
        return int(self.inputs.splits[: self.inputs.num_splits[0], 1].sum())

    def _fill(self, chunks: Sequence[Chunk]) -> list[slice]:
        rows = self.inputs.fill(chunks)
        ids = self.inputs.token_ids[: self.inputs.num_tokens[0]]
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise EngineError(
                f"token ids from {ids.min()} to {ids.max()} reach the model, which knows "
                f"0 to {self.vocab_size - 1}"
            )
        return rows

    def _results(self, chunks: Sequence[Chunk], rows: Sequence[slice]) -> list[ChunkResult]:
        results = [self._result(chunk, where) for chunk, where in zip(chunks, rows, strict=True)]
        self._cache_memory.touch_ahead(chunks)
        return results

    def rest(self) -> bool:
        """Prepare for what may be asked, for a millisecond; whether anything is left to prepare."""
        return self._cache_memory.touch_at_rest()

    def close(self) -> None:
        """End the worker threads and give the memory back, whoever still refers to the runner."""
        self._pool.close()
        self._memory.give_back()
        give_back_freed()  # compiling leaves tens of megabytes behind

    def _result(self, chunk: Chunk, rows: slice) -> ChunkResult:
        if rows.start == rows.stop:
            return ChunkResult()
        logits = self.inputs.logits[rows, : self.vocab_size]
        state = chunk.sampling
        if state is not None and state.process is not None:
            try:
                self._redraw(state, logits[-1], rows.stop - 1)
            except SamplingError as error:
                return ChunkResult(error=error)
        result = self.inputs.draws.result(chunk, rows)
        if chunk.logit_rows == "all" and chunk.scoring is None and result.finite:
            return replace(result, logits=logits.copy())
        return result

    def _redraw(self, state: SamplingState, logits: NDArray[np.float32], row: int) -> None:
        if self._processed is None:
            self._processed = ProcessedDraws(self._pool.compiler, self.vocab_size)
        self._processed.redraw(state, logits, self.inputs.draws, row)


def _span(chunk: Chunk) -> ChunkSpan:
    return ChunkSpan(
        chunk.request_id,
        chunk.start,
        len(chunk.token_ids),
        chunk.decoding,
        chunk.reaches_end,
        chunk.arrival_seconds,
        chunk.page_table,
        chunk.num_shared,
    )


def _walks(chunk: Chunk) -> bool:
    """Whether the token after a chunk's is drawn without asking Python anything."""
    state = chunk.sampling
    return (
        chunk.decoding
        and len(chunk.token_ids) == 1
        and len(chunk.stop_ids) <= STOP_IDS
        and state is not None
        and state.num_logprobs is None
        and not state.needs_history
    )
