"""DashInfer's `Engine`: models by name, requests by handle, statuses for what came of it.

What a caller wrote wrongly (an unknown key, a model that is not there) raises one of this
package's errors. What depends on a request or on the load is a status, and the queue's Get raises
the reason, so that it cannot be overlooked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from dashinfer_lab import __version__
from dashinfer_lab.allspark._allspark import (
    AsStatus,
    GenerateRequestStatus,
    TargetDevice,
    status_of,
)
from dashinfer_lab.allspark.engine_stat import AsEngineStat
from dashinfer_lab.allspark.generation_config import ASGenerationConfigBuilder
from dashinfer_lab.allspark.model_config import AsModelConfig, require_flag, require_text
from dashinfer_lab.allspark.quantization import QuantizeConfig, scheme_of
from dashinfer_lab.allspark.result_queue import GeneratedElements, ResultQueue
from dashinfer_lab.allspark.serialize import (
    directory_for,
    require_agreement,
    torch_checkpoint,
    write_checkpoint,
)
from dashinfer_lab.allspark.served import RequestId, ServedModel
from dashinfer_lab.errors import ConfigError, EngineError, RequestError

__all__ = ["ClientEngine", "Engine", "Started", "TargetDevice"]

Started = tuple[AsStatus, RequestId, ResultQueue]
"""What starting a request came to, its handle, and the queue of its results."""

GenerateConfig = Mapping[str, Any] | ASGenerationConfigBuilder | None
_OK: Final = AsStatus.ALLSPARK_SUCCESS


class Engine:
    """Serves any number of models in this process; a context manager."""

    def __init__(self) -> None:
        self._models: Final[dict[str, ServedModel]] = {}

    def serialize_model_from_torch(
        self,
        model_name: str,
        model_type: str,
        torch_model: Any,
        model_config: Any = None,
        save_dir: str | None = None,
        multinode_mode: bool = False,
        data_type: str = "float32",
        do_dynamic_quantize_convert: bool = False,
        quant_config: QuantizeConfig | None = None,
        *,
        use_dynamic_ntk: bool | None = None,
        use_logn_attn: bool | None = None,
        rotary_base: float | None = None,
        tokenizer: Any = None,
    ) -> None:
        """Convert a transformers model, or a state dict with its config, into save_dir/model_name.

        multinode_mode: without effect, since one file serves all nodes. tokenizer: kept with the
        model, so that it takes text. The last three of positions must agree with the config.
        """
        del multinode_mode
        require_flag("do_dynamic_quantize_convert", do_dynamic_quantize_convert)
        if quant_config is None and do_dynamic_quantize_convert:
            quant_config = QuantizeConfig(extra_option={"SubChannel": True, "GroupSize": 64})
        scheme = scheme_of(data_type, quant_config if do_dynamic_quantize_convert else None)
        said = {"use_dynamic_ntk": use_dynamic_ntk, "use_logn_attn": use_logn_attn}
        said["rotary_base"] = cast("Any", rotary_base)
        if any(value is not None for value in said.values()):
            require_agreement(model_config or getattr(torch_model, "config", None), said)
        directory = directory_for(save_dir, model_name)
        with torch_checkpoint(
            model_name, model_type, torch_model, model_config, tokenizer
        ) as checkpoint:
            write_checkpoint(checkpoint, directory, scheme)

    def build_model_from_config_struct(self, as_model_config_struct: AsModelConfig) -> AsStatus:
        """Load a model; raises where it cannot be."""
        name = _config(as_model_config_struct).model_name
        require_text("model_name", name)
        if name in self._models:
            raise ConfigError(f"a model named {name!r} is loaded already: release_model it first")
        self._models[name] = ServedModel(as_model_config_struct)
        return _OK

    def install_model(self, as_model_config_struct: AsModelConfig) -> AsStatus:
        """Load a model; raises where it cannot be."""
        return self.build_model_from_config_struct(as_model_config_struct)

    def start_model(self, model_name: str) -> AsStatus:
        """Take requests for a loaded model."""
        self._model(model_name).started = True
        return _OK

    def stop_model(self, model_name: str) -> AsStatus:
        """End the model's requests and take no more, until it is started again."""
        self._model(model_name).stop()
        return _OK

    def release_model(self, model_name: str) -> AsStatus:
        """Unload a model and give its memory back."""
        model = self._model(model_name)
        model.stop()
        model.llm.close()
        del self._models[model_name]
        return _OK

    def start_request(
        self, model_name: str, inputs: Any, generate_config: GenerateConfig = None
    ) -> Started:
        """Begin to generate. inputs: `{"input_ids": ids}`, ids alone, or text.

        ids: [n] or [1, n] whole numbers, as list, NumPy array or DLPack. A request that cannot be
        served has a handle that names none, and its queue's Get raises why.
        """
        model = self._model(model_name)
        try:
            request = model.start(inputs, _as_mapping(generate_config))
        except (RequestError, EngineError) as error:
            # A handle of its own: None, where all are meant, would end everybody's.
            refused = RequestId("refused", ResultQueue(error))
            return status_of(error), refused, refused.queue
        return _OK, request, request.queue

    def start_request_ids(
        self, model_name: str, model: object, input_ids: Any, generate_config_builder: Any
    ) -> Started:
        """Begin to generate from ids; `model`, its loader, is not asked."""
        del model
        return self.start_request(model_name, {"input_ids": input_ids}, generate_config_builder)

    def start_request_text(
        self,
        model_name: str,
        model: object,
        input_str_or_array: str | Sequence[str],
        generate_config_builder: GenerateConfig,
    ) -> Started:
        """Begin to generate from text, by the loaded model's own tokenizer."""
        del model
        given: Any = input_str_or_array
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, Sequence) or len(texts) != 1 or not isinstance(texts[0], str):
            raise ConfigError(
                f"input_str_or_array={given!r:.80} is not possible: give one text a request"
            )
        return self.start_request(model_name, texts[0], generate_config_builder)

    def sync_request(self, model_name: str, request_handle: RequestId | None) -> AsStatus:
        """Wait for a request to end, or for all of the model's; the status is that of the worst."""
        found = self._model(model_name).find(request_handle)
        if found is None:
            return AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID
        return max((queue.synchronise() for queue in found), default=_OK)

    def stop_request(self, model_name: str, request_handle: RequestId | None) -> AsStatus:
        """End a request, or all of the model's; its tokens stay to be taken. Idempotent."""
        found = self._model(model_name).find(request_handle)
        if found is None:
            return AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID
        for queue in found:
            queue.cancel()
        return _OK

    def release_request(self, model_name: str, request_handle: RequestId | None) -> AsStatus:
        """End a request, or all of the model's, and know it no more."""
        status = self.stop_request(model_name, request_handle)
        if status is _OK:
            self._model(model_name).forget(request_handle)
        return status

    def get_wait(self, model_name: str, result_queue: ResultQueue) -> GeneratedElements | None:
        """Wait for new tokens of a request, as its queue's Get does."""
        self._model(model_name)
        return _queue(result_queue).Get()

    def get_no_wait(self, model_name: str, result_queue: ResultQueue) -> GeneratedElements | None:
        """Take the new tokens of a request, as its queue's GetNoWait does."""
        self._model(model_name)
        return _queue(result_queue).GetNoWait()

    def get_request_status(
        self, model_name: str, result_queue: ResultQueue
    ) -> GenerateRequestStatus:
        """How far a request is, as its queue's GenerateStatus does."""
        self._model(model_name)
        return _queue(result_queue).GenerateStatus()

    def get_op_profiling_info(self, model_name: str) -> str:
        """Times by operator, prefill and decode apart; needs do_profiling or AS_PROFILE=ON."""
        return self._model(model_name).llm.get_op_profiling_info()

    def get_as_engine_stat(self, model_name: str) -> AsEngineStat:
        """What a model holds and does now."""
        return self._model(model_name).stat()

    def get_model_info(self, model_name: str) -> str:
        """The model in a line."""
        return repr(self._model(model_name).llm)

    def is_allspark_work_as_service(self) -> bool:
        """False: no other process serves."""
        return False

    def get_version_full(self) -> str:
        """This package's version."""
        return __version__

    def get_rank_id(self) -> int:
        """0: there is one process."""
        return 0

    def get_rank_nums(self) -> int:
        """1: there is one process."""
        return 1

    def close(self) -> None:
        """Release all models; closing twice is harmless."""
        for name in tuple(self._models):
            self.release_model(name)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Engine {__version__}: {', '.join(self._models) or 'no models'}>"

    def _model(self, model_name: Any) -> ServedModel:
        model = self._models.get(model_name) if isinstance(model_name, str) else None
        if model is None:
            known = ", ".join(self._models) or "none"
            raise ConfigError(
                f"no model named {model_name!r:.80} is loaded (loaded: {known}): build it with "
                "build_model_from_config_struct"
            )
        return model


ClientEngine = Engine
"""DashInfer's engine of several processes: one process serves all cores here."""


def _config(given: object) -> AsModelConfig:
    if not isinstance(given, AsModelConfig):
        raise ConfigError(f"{given!r:.80} is no model's configuration: give an AsModelConfig")
    return given


def _queue(given: object) -> ResultQueue:
    if not isinstance(given, ResultQueue):
        raise ConfigError(
            f"result_queue={given!r:.80} is not possible: give the one that start_request returned"
        )
    return given


def _as_mapping(config: object) -> Mapping[str, Any]:
    if config is None:
        return {}
    if isinstance(config, ASGenerationConfigBuilder):
        return config.build()
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"generate_config={config!r:.80} is not understood: give a dict, or an "
            "ASGenerationConfigBuilder"
        )
    return cast("Mapping[str, Any]", config)
