"""One model as the engine serves it: loaded, started or stopped, and its open requests."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Final

from dashinfer_lab.allspark.engine_stat import AsEngineStat, StepRates, TokenTally, engine_stat
from dashinfer_lab.allspark.generation_config import sampling_params
from dashinfer_lab.allspark.model_config import AsModelConfig, load_arguments, model_source
from dashinfer_lab.allspark.prompt_ids import prompt_ids
from dashinfer_lab.allspark.result_queue import ResultQueue
from dashinfer_lab.errors import EngineClosedError, RequestError
from dashinfer_lab.llm import LLM

__all__ = ["RequestId", "ServedModel"]

_UNNAMED: Final = itertools.count()


class RequestId:
    """Names a request to its engine; while it or the queue is held, the request goes on."""

    def __init__(self, name: str, queue: ResultQueue) -> None:
        self.name: Final = name
        self.queue: Final = queue

    def __repr__(self) -> str:
        return f"<RequestId {self.name}>"


class ServedModel:
    """Holds its requests weakly: who drops both handle and queue cancels."""

    def __init__(self, config: AsModelConfig) -> None:
        self.name: Final = config.model_name
        self.llm: Final = LLM(model_source(config), **load_arguments(config))
        self.started = False
        self._longest: Final = config.engine_max_length or self.llm.config.context_length
        self._requests: Final[weakref.WeakValueDictionary[str, ResultQueue]] = (
            weakref.WeakValueDictionary()
        )
        self._naming: Final = threading.Lock()
        self._tally: Final = TokenTally()
        # Also of those that are forgotten: a released queue may still be read.
        self._queues: Final[weakref.WeakSet[ResultQueue]] = weakref.WeakSet()
        self._rates: Final = StepRates()
        self.llm.engine.subscribe(self._rates)

    def start(self, inputs: Any, config: Mapping[str, Any]) -> RequestId:
        """Queue one request. Raises RequestError, EngineError, or ConfigError for unknown keys."""
        if not self.started:
            raise EngineClosedError(f"model {self.name!r} is not started: call start_model first")
        ids = self._encoded(inputs) if isinstance(inputs, str) else prompt_ids(inputs)
        params = sampling_params(config, self.llm.sampling_defaults, len(ids), self._longest)
        with self._naming:
            name = self._name_of(config)
            queue = ResultQueue(self.llm.engine.submit(ids, params), self._tally.add)
            self._requests[name] = queue
            self._queues.add(queue)
        return RequestId(name, queue)

    def find(self, request: object) -> list[ResultQueue] | None:
        """The queue of a request, or of all for None; None for what is no request of this model."""
        if request is None:
            # References first, at once: other threads add and drop requests meanwhile.
            found = [reference() for reference in self._requests.valuerefs()]
            return [queue for queue in found if queue is not None]
        if not isinstance(request, RequestId):
            return None
        known = self._requests.get(request.name) is request.queue
        return [request.queue] if known else None

    def forget(self, request: RequestId | None) -> None:
        """Let a request, or all, be known no more."""
        if request is None:
            self._requests.clear()
        else:
            self._requests.pop(request.name, None)

    def stop(self) -> None:
        """Take no more requests and end those that are open."""
        self.started = False
        for queue in self.find(None) or ():
            queue.cancel()

    def stat(self) -> AsEngineStat:
        """Figures of now."""
        with self._naming:  # adding waits meanwhile
            queues = tuple(self._queues)
        for queue in queues:
            queue.GeneratedLength()  # takes in what was drawn
        return engine_stat(self.name, self.llm, self._rates, self._tally.total)

    def _encoded(self, text: str) -> list[int]:
        if self.llm.tokenizer is None:
            raise RequestError(f"model {self.name!r} has no tokenizer: give input_ids")
        return list(self.llm.token_ids(text, must_fit=True))

    def _name_of(self, config: Mapping[str, Any]) -> str:
        given, label = config.get("uuid"), config.get("user_request_id")
        if label is not None and not isinstance(label, str):
            raise RequestError(f"user_request_id={label!r:.80} must be a text")
        if given is None:
            names = (f"{label or 'request'}-{number}" for number in _UNNAMED)
            return next(name for name in names if name not in self._requests)
        if not isinstance(given, str) or given in self._requests:
            raise RequestError(f"uuid={given!r:.80} must be a text that names no open request")
        return given
