"""`LLM`: a model in one object, in vLLM's names; converts once, batches continuously.

Joins artifact, tokenizer and engine; computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, cast

from dashinfer_lab.beam_search import BeamSearchOutput, BeamSearchParams, search
from dashinfer_lab.config import ModelConfig, profile_from_start
from dashinfer_lab.engine import Engine, EngineOptions, RequestHandle, RequestOptions
from dashinfer_lab.engine.auto_kv import KvChoice
from dashinfer_lab.engine.loading import LoadOptions, load_runner
from dashinfer_lab.engine.memory_report import MemoryReport, memory_report
from dashinfer_lab.engine.opening import open_model
from dashinfer_lab.engine.profiler import Profiler
from dashinfer_lab.outputs import RequestOutput
from dashinfer_lab.profiling import Capture, OpProfile, ProfileRecorder
from dashinfer_lab.progress import LoadProgress, counted, progress_from
from dashinfer_lab.prompt_encoder import PromptEncoder
from dashinfer_lab.prompts import (
    Message,
    Prompt,
    chat_layout,
    is_list,
    named_options,
    options_for,
    params_for,
    prompt_text,
    prompts_in,
    salted,
)
from dashinfer_lab.sampling import SamplingParams
from dashinfer_lab.sampling.defaults import model_defaults
from dashinfer_lab.session import Session
from dashinfer_lab.vllm_options import LoadArguments

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dashinfer_lab.convert import Artifact
    from dashinfer_lab.tokenizer import Tokenizer
    from jit_kernels.autotune import Choice as ScheduleChoice
    from jit_kernels.bench import Roof

__all__ = ["LLM", "MemoryReport", "Message", "Prompt"]


class LLM:
    """Load `model` and generate with it; a context manager.

    model: directory of a checkpoint or a converted model, GGUF file, a hub's id, an embedded
    model's name, or a transformers model in memory.  tokenizer: the last one's tokenizer.
    weights: "fp32", "bf16", "a16w8", "a16w4", or with a group size "a16w8:G", "a16w4:G"; "a8w8" and
    "a8w4" round activations, too, which is faster for prompts and changes answers; "auto" takes
    a16w8 but for the smallest models, see `weights_reason`. A checkpoint is converted once, into
    the cache.
    threads: None derives them from affinity, quota and cores.
    kv_cache_dtype: "fp32", "bf16", "int8"; "auto" goes by weights and memory, see
    `kv_choice`.  context_length, max_batch_tokens, kv_cache_bytes: see `LoadOptions`.  engine: see
    `EngineOptions`.
    progress: True shows a bar while the model is fetched or converted, where a person watches.
    chat_template: in place of the model's own, as text or the path of a file.
    autotune: True measures the schedules of the linear layers where none are stored for these
    shapes and this machine: some 20 s, once. Every later load uses them, whatever it is given here;
    results never depend on them. "again" measures in any case.
    always_profile: time every step, for `get_op_profiling_info`; None asks AS_PROFILE.
    chaos_seed: let workers wait random times, for tests; results do not depend on it.
    vllm_options: vLLM's names, such as max_model_len; ConfigError where one cannot hold on a CPU.
    """

    def __init__(
        self,
        model: str | Path | Any,
        *,
        tokenizer: Any = None,
        weights: str = "auto",
        threads: int | None = None,
        kv_cache_dtype: str = "auto",
        context_length: int | None = None,
        max_batch_tokens: int = 512,
        kv_cache_bytes: int | None = None,
        engine: EngineOptions | None = None,
        progress: LoadProgress | bool = True,
        chat_template: str | Path | None = None,
        autotune: bool | Literal["again"] = False,
        always_profile: bool | None = None,
        chaos_seed: int | None = None,
        **vllm_options: Any,
    ) -> None:
        given = LoadArguments(weights, context_length, max_batch_tokens, kv_cache_bytes, engine)
        weights, context_length, max_batch_tokens, kv_cache_bytes, engine = given.with_vllm(
            vllm_options
        )
        options = LoadOptions(
            threads, context_length, max_batch_tokens, kv_cache_bytes, chaos_seed, kv_cache_dtype,
            autotune,
        )  # fmt: skip
        always_profile = profile_from_start() if always_profile is None else always_profile
        self._weights = weights
        with progress_from(progress) as told:
            self.artifact: Artifact = open_model(model, tokenizer, weights, threads, told)
        from dashinfer_lab.tokenizer import Tokenizer

        self.tokenizer = Tokenizer.find(self.artifact.directory, chat_template)
        self.sampling_defaults: Mapping[str, Any] = model_defaults(self.artifact.directory)
        loaded = load_runner(self.artifact, options)
        self._runner = loaded.runner
        self._thread_plan = loaded.threads
        self._kv_choice = loaded.kv_choice
        self._schedules = loaded.schedules
        self._profiler = Profiler(
            loaded.runner, self.artifact, loaded.threads.threads, always=always_profile
        )
        self._isa = loaded.runner.program.pool.compiler.isa.name
        try:
            self._engine = Engine(
                loaded.runner,
                eos_ids=self.tokenizer.eos_ids if self.tokenizer else (),
                decoder=self.tokenizer.incremental if self.tokenizer else None,
                token_text=self.tokenizer.token_text if self.tokenizer else None,
                encode=self.tokenizer.encode_plain if self.tokenizer else None,
                num_ids=self.tokenizer.vocab_size if self.tokenizer else None,
                options=engine,
            )
        except BaseException:
            loaded.runner.close()
            raise
        self._encoder = PromptEncoder(
            self.tokenizer, self.artifact.directory, self._engine.longest_prompt
        )

    @property
    def config(self) -> ModelConfig:
        """The model's architecture."""
        return self.artifact.config

    @property
    def isa(self) -> str:
        """Instruction set the kernels were compiled for."""
        return self._isa

    @property
    def threads(self) -> int:
        """Worker threads."""
        return self._thread_plan.threads

    @property
    def weights_reason(self) -> str:
        """Why the weights are in their scheme, with memory, bytes a token and expected speed."""
        from dashinfer_lab.engine.auto_weights import explain

        return explain(self.artifact, self._weights, self.isa, self.threads)

    @property
    def kv_choice(self) -> KvChoice:
        """The format of keys and values, and why: `kv_choice.reason()`."""
        return self._kv_choice

    @property
    def schedules(self) -> ScheduleChoice | None:
        """How linear layers walk their weights, as measured; None where nothing was."""
        return self._schedules

    @property
    def default_sampling_params(self) -> SamplingParams:
        """What is taken where a call gives none: the model's generation_config.json, then ours."""
        return SamplingParams(**self.sampling_defaults)

    @property
    def engine(self) -> Engine:
        """The engine, for handles, statistics and step events."""
        return self._engine

    @named_options
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = False,
        *,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Complete every prompt, batched together; one output for each, in order.

        priority: one for each prompt, lower is earlier; see `RequestOptions`. A prompt of
        {"prompt_token_ids": [...], "cache_salt": text} shares pages under that salt alone.
        An interrupt cancels them all, and so does a prompt that cannot be served, which raises
        `RequestError`. use_tqdm: count the prompts that are done under a bar.
        """
        wanted = prompts_in(prompts)
        texts = [prompt_text(prompt) for prompt in wanted]
        options = options_for(wanted, priority)
        chosen = self._chosen(len(wanted), sampling_params)
        must_fit = [it.truncate_prompt_tokens is None for it in chosen]
        ids = [self._encoder.ids(p, must_fit=m) for p, m in zip(wanted, must_fit, strict=True)]
        return self._complete(texts, ids, chosen, options, use_tqdm)

    @named_options
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = False,
        *,
        chat_template: str | Path | None = None,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer a conversation, or several, through the model's chat template.

        The options are those of `Tokenizer.apply_chat_template`, by vLLM's names.
        """
        options = {"add_generation_prompt": add_generation_prompt, "tools": tools}
        layout = chat_layout(chat_template, chat_template_kwargs, **options)
        many = is_list(messages) and bool(messages) and is_list(messages[0])
        conversations = cast("Sequence[Sequence[Message]]", messages if many else [messages])
        chosen = self._chosen(len(conversations), sampling_params)
        ids = [
            self._encoder.chat_ids(
                conversation, must_fit=params.truncate_prompt_tokens is None, **layout
            )
            for conversation, params in zip(conversations, chosen, strict=True)
        ]
        return self._complete([None] * len(ids), ids, chosen, None, use_tqdm)

    @named_options
    def beam_search(
        self, prompts: Prompt | Sequence[Prompt], params: BeamSearchParams
    ) -> list[BeamSearchOutput]:
        """Find the likeliest sequences that so many beams see, for every prompt, batched."""
        wanted = prompts_in(prompts)
        ids = [self._encoder.ids(prompt, must_fit=True) for prompt in wanted]
        return search(self._engine, ids, params, self.tokenizer, options_for(wanted, None))

    @named_options
    def stream(
        self, prompt: Prompt | Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Yield the answer's text as it comes; leaving the loop cancels the request."""
        handle = self.submit(prompt, sampling_params)
        return (event.text for event in handle if event.text)

    @named_options
    def submit(
        self,
        prompt: Prompt | Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        options: RequestOptions | None = None,
    ) -> RequestHandle:
        """Begin an answer and return its handle: tokens as they come, `cancel`, metrics.

        A list of messages goes through the model's chat template. Without parameters the answer
        may take the rest of the context. A full queue lets the caller wait. Raises `RequestError`.
        """
        whole = replace(self.default_sampling_params, max_tokens=None)
        (params,) = params_for(1, whole if sampling_params is None else sampling_params)
        ids, options = (
            self.token_ids(prompt, params.truncate_prompt_tokens is None),
            salted(prompt, options),
        )
        return self._engine.submit(ids, params, block=True, options=options)

    def token_ids(
        self, prompt: Prompt | Sequence[Message], must_fit: bool = False
    ) -> Iterable[int]:
        """The ids of a prompt, or of a list of messages through the model's chat template.

        must_fit: refuse a text far too long to be served before all of it is encoded.
        """
        if isinstance(prompt, str | Mapping):
            return self._encoder.ids(prompt, must_fit=must_fit)
        return self._encoder.chat_ids(prompt, must_fit=must_fit)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which it must have."""
        return self._encoder.required_tokenizer()

    def session(
        self, messages: Sequence[Message] = (), *, options: RequestOptions | None = None
    ) -> Session:
        """Begin a conversation whose keys and values are kept between turns; see `Session`."""
        self._encoder.required_tokenizer()
        return Session(partial(self.submit, options=options), messages)

    def logits(
        self, token_ids: Sequence[int], positions: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """Logits after each token, float32 [T, vocab], or of the positions asked for."""
        return self._engine.compute_logits(token_ids, positions)

    def memory(self) -> MemoryReport:
        """What the model takes."""
        return memory_report(self._runner)

    def profiling(
        self, capture: Capture | None = None, *, save: str | Path | None = None
    ) -> AbstractContextManager[ProfileRecorder]:
        """Time every operation of the steps run meanwhile; `OpProfile.of` sums them up.

        capture: record one prefill, or so many decode steps of a batch, and stop; leaving before
        that came is an `EngineError`.  save: file to write on leaving, see `OpProfile.save`.
        """
        return self._profiler.recording(capture, save)

    def profile(
        self,
        prompt: Prompt | Sequence[Message] = "The quick brown fox jumps over the lazy dog. " * 12,
        sampling_params: SamplingParams | None = None,
        *,
        roof: bool = True,
    ) -> OpProfile:
        """Generate once and say where the time went, prefill and decode apart.

        roof: measure what this machine can do afterwards, to hold the times against it.
        """
        params = sampling_params or SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
        ids = self.token_ids(prompt)
        # Nobody has computed the prompt under this salt: there is a prefill to look at.
        alone = RequestOptions(cache_salt=token_hex(16))
        with self.profiling() as recorder:
            self._complete([None], [ids], [params], [alone])
        return OpProfile.of(recorder, self.measure_roof() if roof else None)

    def measure_roof(self) -> Roof:
        """What this machine can do with as many threads, for `OpProfile.of`; about a second."""
        return self._profiler.measure_roof()

    def get_op_profiling_info(self) -> str:
        """The report of all steps so far, with always_profile; else raises `EngineError`."""
        return str(self._profiler.standing())

    def close(self) -> None:
        """Cancel what runs, end the threads; closing twice is harmless."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        config, scheme = self.config, self.artifact.metadata.get("scheme", "?")
        size = self.artifact.num_bytes / 1e6
        state = "" if self._engine.alive else ", closed"
        return (
            f"<LLM {self.artifact.directory.name}: {config.model_type}, {config.num_layers} "
            f"layers, {scheme}, {size:.0f} MB, {self.isa}, {self.threads} threads{state}>"
        )

    def _complete(
        self,
        texts: Sequence[str | None],
        ids: Sequence[Iterable[int]],
        chosen: Sequence[SamplingParams],
        options: Sequence[RequestOptions] | None = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        handles: list[list[RequestHandle]] = []
        try:
            served = options or [RequestOptions()] * len(ids)
            for tokens, wanted, how in zip(ids, chosen, served, strict=True):
                choices = self._engine.submit_choices(tokens, wanted, block=True, options=how)
                for choice in choices:
                    choice.want_whole()
                handles.append(choices)
            groups = counted(handles, "prompts") if use_tqdm else handles
            return [_output(text, group) for text, group in zip(texts, groups, strict=True)]
        except BaseException:
            for group in handles:
                for handle in group:
                    handle.cancel()
            raise

    def _chosen(self, count: int, params: object) -> list[SamplingParams]:
        return params_for(count, self.default_sampling_params if params is None else params)


def _output(text: str | None, handles: Sequence[RequestHandle]) -> RequestOutput:
    outputs = [handle.completion() for handle in handles]
    first = handles[0]
    return RequestOutput(
        request_id=str(first.request_id),
        prompt=text,
        prompt_token_ids=first.prompt_token_ids,
        outputs=outputs,
        metrics=first.metrics,
        prompt_logprobs=first.prompt_logprobs,
    )
