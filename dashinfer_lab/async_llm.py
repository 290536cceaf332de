"""`AsyncLLM`: vLLM's asynchronous engine by its names; joins `LLM` and the event loop."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.async_stream import RequestStream
from dashinfer_lab.engine import RequestHandle
from dashinfer_lab.errors import ConfigError, EngineClosedError, RequestError
from dashinfer_lab.llm import LLM
from dashinfer_lab.prompts import Message, Prompt, named_options, options_for
from dashinfer_lab.sampling import SamplingParams

if TYPE_CHECKING:
    from dashinfer_lab.tokenizer import Tokenizer

__all__ = ["AsyncEngineArgs", "AsyncLLM", "AsyncLLMEngine"]


@dataclass(frozen=True, slots=True, init=False)
class AsyncEngineArgs:
    """A model and the options of `LLM`, vLLM's names among them."""

    model: Any
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __init__(self, model: Any, **options: Any) -> None:
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "options", options)


class AsyncLLM:
    """Load `model` as `LLM` does and generate in an event loop; a context manager of both kinds.

    model: an `LLM` is shared instead, and takes no options; whoever made it may go on with it.
    Loading takes its time in the caller's thread; afterwards the engine's own thread computes.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        if isinstance(model, LLM) and options:
            raise ConfigError(
                f"{', '.join(options)}: {model!r} is loaded already, give them to `LLM`"
            )
        self.llm: Final = model if isinstance(model, LLM) else LLM(model, **options)
        self._ids: Final = itertools.count()
        self._streams: Final[weakref.WeakValueDictionary[str, RequestStream]] = (
            weakref.WeakValueDictionary()
        )

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> AsyncLLM:
        """Load what the arguments say."""
        return cls(engine_args.model, **engine_args.options)

    @named_options
    def generate(
        self,
        prompt: Prompt | Sequence[Message],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
    ) -> RequestStream:
        """Answer a prompt, or messages: `await` it, or iterate, outside a loop with `for`.

        Leaving the iteration, or cancelling its task, cancels in the engine. Without parameters
        the answer may take the rest of the context. priority: lower is earlier, as in `generate`.
        Raises `RequestError` for what cannot be answered and for the id of an open request.
        """
        name = f"request-{next(self._ids)}" if request_id is None else str(request_id)
        if name in self._streams:
            raise RequestError(f"request_id={name!r:.80} names an open request: choose another")
        params = self._params(sampling_params)
        (options,) = options_for([prompt if isinstance(prompt, Mapping) else ""], [priority])

        def begin(block: bool) -> list[RequestHandle]:
            ids = self.llm.token_ids(prompt, params.truncate_prompt_tokens is None)
            return self.llm.engine.submit_choices(ids, params, block=block, options=options)

        text = prompt if isinstance(prompt, str) else None
        stream = RequestStream(name, text, begin, params.output_kind)
        self._streams[name] = stream
        return stream

    @named_options
    def chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> RequestStream:
        """Answer a conversation through the model's chat template, as `generate` does."""
        return self.generate(messages, sampling_params)

    async def abort(self, request_id: str) -> None:
        """Cancel a request by its name; nothing where it ended, or is not known."""
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.cancel()

    async def get_tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer; None where it has none."""
        return self.llm.tokenizer

    async def check_health(self) -> None:
        """Raise `EngineClosedError` where no requests are taken any more."""
        if self.errored:
            raise EngineClosedError("the engine takes no requests: make a new one")

    @property
    def is_running(self) -> bool:
        """Whether requests are taken."""
        return self.llm.engine.alive

    @property
    def errored(self) -> bool:
        """Whether requests are refused, because it was shut down or has failed."""
        return not self.llm.engine.alive

    def shutdown(self) -> None:
        """Cancel what runs, end the threads; doing so twice is harmless."""
        self.llm.close()

    def _params(self, given: object) -> SamplingParams:
        if given is None:
            return replace(self.llm.default_sampling_params, max_tokens=None)
        if not isinstance(given, SamplingParams):
            raise RequestError(f"sampling_params={given!r:.80} must be a SamplingParams, or None")
        return given

    def __enter__(self) -> AsyncLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<Async{repr(self.llm)[1:]}"


AsyncLLMEngine = AsyncLLM
"""The older of vLLM's names."""
