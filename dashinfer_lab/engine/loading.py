"""From an artifact to a runner: threads, sizes, cache pages; says why where it chooses.

Knows this machine's memory and cores; knows no request and no text.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from dashinfer_lab.config import ModelConfig, cache_root
from dashinfer_lab.engine.auto_kv import KvChoice, choose_kv_format, require_kv_dtype
from dashinfer_lab.engine.runner import CompiledRunner, page_bytes
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.free_memory import available_bytes
from dashinfer_lab.log_words import translate_log
from dashinfer_lab.lower import PlanLimits, ProgramPlan, cached_plan
from dashinfer_lab.lower.schedules import Autotune, scheduled_plan
from dashinfer_lab.numbers import is_whole, require_count
from dashinfer_lab.quantize import Scheme
from jit_kernels.autotune import Choice
from jit_kernels.compiler.jit import compiler_for
from jit_kernels.isa import detect
from jit_kernels.kernels.linear_tiles import row_tile
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.runtime.threads import MAX_THREADS, Pool
from jit_kernels.runtime.topology import ThreadPlan, thread_plan

if TYPE_CHECKING:
    from dashinfer_lab.convert import Artifact

__all__ = ["MAX_LOGIT_ROWS", "LoadOptions", "Loaded", "load_runner"]

MAX_LOGIT_ROWS = 64
_DEFAULT_CACHE_TOKENS = 16384
_CACHE_SHARE_OF_MEMORY = 0.5
_BITS_OF_FORMS: Final = {"i7": 7, "i8": 8}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded; None lets the machine decide.

    context_length: positions to serve.  max_batch_tokens: rows of a step.
    kv_cache_bytes: memory reserved for keys and values.  kv_cache_dtype: their format, see
    `auto_kv`.  autotune: True measures schedules where none are stored for this machine and these
    shapes, which takes some 20 s; "again" in any case. What is stored is always used.
    """

    threads: int | None = None
    context_length: int | None = None
    max_batch_tokens: int = 512
    kv_cache_bytes: int | None = None
    chaos_seed: int | None = None
    kv_cache_dtype: str = "auto"
    autotune: bool | Literal["again"] = False

    def __post_init__(self) -> None:
        require_kv_dtype(self.kv_cache_dtype)
        for name in ("threads", "context_length", "max_batch_tokens", "kv_cache_bytes"):
            value = getattr(self, name)
            if value is None and name != "max_batch_tokens":
                continue
            require_count(name, value)
        if self.chaos_seed is not None and not is_whole(self.chaos_seed):
            raise ConfigError(f"chaos_seed={self.chaos_seed!r:.80} must be a whole number, or None")
        if self.autotune not in (False, True, "again"):
            raise ConfigError(
                f"autotune={self.autotune!r:.80}: True measures what was not measured before, "
                "'again' in any case, False never"
            )
        if self.threads is not None and self.threads > MAX_THREADS:
            raise ConfigError(f"threads={self.threads} exceeds the {MAX_THREADS} of a pool")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A runner, and how its threads, the format of its pages and its schedules were chosen."""

    runner: CompiledRunner
    threads: ThreadPlan
    kv_choice: KvChoice
    schedules: Choice | None


def load_runner(artifact: Artifact, options: LoadOptions) -> Loaded:
    """Lower, compile and bind `artifact`; raises `ConfigError` naming an impossible size."""
    translate_log()
    context_length = options.context_length or artifact.config.context_length
    if context_length > artifact.config.context_length:
        raise ConfigError(
            f"context_length={context_length} exceeds the {artifact.config.context_length} "
            "positions this model was trained for: lower it"
        )
    isa = detect()
    threads = thread_plan(options.threads)
    kv_choice = _kv_choice(artifact, context_length, options)
    limits = PlanLimits(
        max_tokens=min(options.max_batch_tokens, context_length),
        max_logit_rows=min(MAX_LOGIT_ROWS, options.max_batch_tokens, context_length),
        num_threads=threads.threads,
        row_tile=row_tile(isa),
        kv_format=kv_choice.kv_format,
    )
    plan = cached_plan(artifact, limits, cache_root() / "lowered")
    _warn_of_coarse_activations(plan)
    _say_which_angles(artifact.config, context_length)
    _warn_of_turns(threads)
    artifact.prefault()
    num_pages = _num_pages(plan, context_length, options.kv_cache_bytes)
    pool = Pool(threads.threads, compiler_for(isa, cache_root() / "objects"))
    try:
        plan, schedules = scheduled_plan(artifact, plan, pool, cache_root(), _autotune(options))
        runner = CompiledRunner(
            artifact,
            plan,
            pool,
            num_pages=num_pages,
            context_length=context_length,
            chaos_seed=options.chaos_seed,
        )
    except BaseException:
        pool.close()
        raise
    return Loaded(runner, threads, kv_choice, schedules)


def _warn_of_turns(threads: ThreadPlan) -> None:
    if threads.threads > threads.usable:
        _log.warning(
            "threads=%d, but only %d can run at once: they take turns, which is slow for this "
            "program and for others; leave threads away",
            threads.threads,
            threads.usable,
        )


def _autotune(options: LoadOptions) -> Autotune:
    if options.autotune == "again":
        return "again"
    return "missing" if options.autotune else "off"


def _kv_choice(artifact: Artifact, context_length: int, options: LoadOptions) -> KvChoice:
    """The format of pages: as asked, or what `auto_kv` takes that leaves room for conversations."""
    given = options.kv_cache_bytes
    return choose_kv_format(
        options.kv_cache_dtype,
        artifact.config,
        Scheme.read(artifact.metadata["scheme"]).weights,
        max(context_length, _DEFAULT_CACHE_TOKENS),
        _affordable_bytes() if given is None else given,
        is_given=given is not None,
    )


def _affordable_bytes() -> int:
    return int(available_bytes() * _CACHE_SHARE_OF_MEMORY)


def _warn_of_coarse_activations(plan: ProgramPlan) -> None:
    forms = {str(op.constants.get("form")) for op in plan.ops}
    for form in sorted(forms & set(_BITS_OF_FORMS)):
        _log.warning(
            "activations are rounded to %d bits, which changes answers; a16w8 and a16w4 keep 16 "
            "bits and decode one request as fast",
            _BITS_OF_FORMS[form],
        )


def _say_which_angles(config: ModelConfig, context_length: int) -> None:
    """Tell which factors of LongRoPE hold: those of the length served, whatever a prompt's is."""
    original = config.rope.original_length
    if config.rope.scaling != "longrope":
        return
    if context_length > original:
        _log.warning(
            "positions turn by LongRoPE's long factors, for contexts above %d tokens; "
            "context_length=%d or less takes the short ones, which short prompts were trained with",
            original,
            original,
        )
    else:
        _log.info("positions turn by LongRoPE's short factors, for contexts up to %d", original)


def _num_pages(plan: ProgramPlan, context_length: int, kv_cache_bytes: int | None) -> int:
    """Pages of the cache: as many bytes as asked, or room for a few conversations.

    Memory is reserved, not taken: a page costs memory once a request has used it.
    """
    import psutil

    size, memory = page_bytes(plan), psutil.virtual_memory()
    if kv_cache_bytes is not None:
        if kv_cache_bytes < size:
            raise ConfigError(
                f"kv_cache_bytes={kv_cache_bytes} is less than one page of {PAGE_SIZE} tokens, "
                f"which takes {size} bytes of this model"
            )
        if kv_cache_bytes > memory.total:
            raise ConfigError(
                f"kv_cache_bytes={kv_cache_bytes} exceeds this machine's {memory.total} bytes of "
                "memory: lower it"
            )
        return kv_cache_bytes // size
    wanted = -(-max(context_length, _DEFAULT_CACHE_TOKENS) // PAGE_SIZE)
    affordable = _affordable_bytes() // size
    return max(1, min(wanted, affordable))
