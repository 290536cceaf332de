"""`HuggingFaceModel`: a checkpoint from its files to a converted model, in DashInfer's chain.

Weights are read from the files as they are converted, so no step holds a whole model in memory.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dashinfer_lab.allspark._allspark import TargetDevice
from dashinfer_lab.allspark.engine import Engine
from dashinfer_lab.allspark.generation_config import ASGenerationConfigBuilder
from dashinfer_lab.allspark.model_config import AsModelConfig, require_text
from dashinfer_lab.allspark.quantization import QuantizeConfig, scheme_of
from dashinfer_lab.allspark.runtime_config import AsModelRuntimeConfigBuilder
from dashinfer_lab.allspark.serialize import directory_for, write_checkpoint
from dashinfer_lab.config import ModelConfig
from dashinfer_lab.convert import is_artifact
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.hub import (
    Checkpoint,
    GgufCheckpoint,
    SafetensorsCheckpoint,
    model_config,
    open_checkpoint,
    resolve,
)
from dashinfer_lab.sampling.defaults import model_defaults
from dashinfer_lab.tokenizer import Tokenizer

__all__ = ["HuggingFaceModel"]

_LOAD_FORMATS: Final[Mapping[str, type]] = {
    "auto": object,
    "safetensors": SafetensorsCheckpoint,
    "gguf": GgufCheckpoint,
}


class HuggingFaceModel:
    """A model that `LLM` could load; the steps return the loader, so that they chain.

    pretrain_model_name_or_path: directory, GGUF file or a hub's id. pretrain_model_name: the name
    its files get. user_set_data_type: "float32" or "bfloat16", of weights that are not quantised.
    in_memory_serialize: write into a directory that goes with `free_memory_serialize_file`.
    trust_remote_code: a leave that is not taken; no code of a model is ever run.
    """

    def __init__(
        self,
        pretrain_model_name_or_path: str,
        pretrain_model_name: str,
        in_memory_serialize: bool = False,
        user_set_data_type: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        del trust_remote_code
        require_text("pretrain_model_name", pretrain_model_name)
        self.hf_model_path: Final = pretrain_model_name_or_path
        self.pretrain_model_name: Final = pretrain_model_name.replace("/", "_")
        self.in_memory_serialize: Final = in_memory_serialize
        self.data_type = user_set_data_type or "bfloat16"
        self._checkpoint: Checkpoint | None = None
        self._quant: QuantizeConfig | None = None
        self._written: Path | None = None
        self._remove: weakref.finalize[..., HuggingFaceModel] | None = None

    def load_model(
        self,
        override_data_type: str | None = None,
        direct_load: bool = False,
        load_format: str = "auto",
    ) -> HuggingFaceModel:
        """Fetch the model where it is not here, and open its files, which is always direct.

        load_format: "safetensors" or "gguf", which the files must then have, or "auto".
        """
        del direct_load
        if load_format not in tuple(_LOAD_FORMATS):
            raise ConfigError(
                f"load_format={load_format!r:.80} is not possible: it is one of "
                f"{', '.join(_LOAD_FORMATS)}; pickles are not read"
            )
        self.data_type = override_data_type or self.data_type
        self.free_model()
        checkpoint = open_checkpoint(resolve(self.hf_model_path))
        if not isinstance(checkpoint, _LOAD_FORMATS[load_format]):
            checkpoint.close()
            raise ConfigError(
                f"load_format={load_format!r} is not what {self.hf_model_path!r:.200} holds: give "
                'the path of such files, or leave load_format "auto"'
            )
        self._checkpoint = checkpoint
        return self

    def read_model_config(self) -> HuggingFaceModel:
        """Read the architecture; raises where it is not supported."""
        _ = self.model_config
        return self

    def init_quantization(
        self, enable: bool = True, customized_quant_config: QuantizeConfig | None = None
    ) -> HuggingFaceModel:
        """Quantise weights when they are written: as told, or in groups of 64."""
        chosen = customized_quant_config or _grouped()
        self._quant = chosen if enable else None
        return self

    def serialize(self, engine: Engine, model_output_dir: str | None = None) -> HuggingFaceModel:
        """Write the converted model into model_output_dir, or where none is given, in memory."""
        if self.in_memory_serialize or model_output_dir is None:
            return self.serialize_to_memory(engine)
        return self.serialize_to_path(engine, model_output_dir)

    def serialize_to_path(
        self,
        engine: Engine,
        model_output_dir: str,
        enable_quant: bool = False,
        weight_only_quant: bool = True,
        skip_if_exists: bool = True,
    ) -> HuggingFaceModel:
        """Write the converted model into model_output_dir under its name.

        enable_quant: quantise weights; activations of the model stay floats, so weight_only_quant
        must hold. skip_if_exists: keep an equal conversion, refuse to replace another.
        """
        del engine
        if enable_quant and not weight_only_quant:
            raise ConfigError(
                "weight_only_quant=False is not possible: activations are not quantised by the "
                "model's file; leave it True"
            )
        quant = self._quant or (_grouped() if enable_quant else None)
        directory = directory_for(model_output_dir, self.pretrain_model_name)
        scheme = scheme_of(self.data_type, quant)
        write_checkpoint(self._opened(), directory, scheme, overwrite=not skip_if_exists)
        self._written = directory
        return self

    def serialize_to_memory(
        self, engine: Engine, enable_quant: bool = False, weight_only_quant: bool = True
    ) -> HuggingFaceModel:
        """Write the converted model where it goes with `free_memory_serialize_file`."""
        self.free_memory_serialize_file()
        folder = tempfile.mkdtemp(prefix="dashinfer-lab-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder)
        return self.serialize_to_path(engine, folder, enable_quant, weight_only_quant)

    def free_memory_serialize_file(self) -> HuggingFaceModel:
        """Remove what `serialize_to_memory` wrote; a model that is loaded goes on."""
        if self._remove is not None:
            self._remove()
            self._remove, self._written = None, None
        return self

    def free_model(self) -> HuggingFaceModel:
        """Close the checkpoint's files."""
        if self._checkpoint is not None:
            self._checkpoint.close()
            self._checkpoint = None
        return self

    def init_tokenizer(self, padding_side: str = "left") -> HuggingFaceModel:
        """Load the tokenizer; requests are never padded, on either side."""
        if padding_side not in ("left", "right"):
            raise ConfigError(f"padding_side={padding_side!r:.80} is not possible: left or right")
        _ = self._text_files
        return self

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer, with `encode`, `decode` and the chat template."""
        return self._text_files[0]

    @cached_property
    def model_config(self) -> ModelConfig:
        """The architecture."""
        return model_config(self._opened().config)

    def get_model_context_length(self) -> int:
        """Positions the model was trained for."""
        return self.model_config.context_length

    def create_reference_generation_config_builder(
        self, runtimeConfig: AsModelConfig | None = None
    ) -> ASGenerationConfigBuilder:
        """What the model's makers recommend, with the longest sequence of `runtimeConfig`."""
        builder = ASGenerationConfigBuilder(self._text_files[1])
        if runtimeConfig is not None and runtimeConfig.engine_max_length:
            builder.max_length(runtimeConfig.engine_max_length)
        return builder

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str,
        device_type: TargetDevice | str = TargetDevice.CPU,
        device_ids: Sequence[int] = (0,),
        max_batch: int = 32,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """Serve what was written, or where nothing was, the model itself, under a name."""
        builder = AsModelRuntimeConfigBuilder().model_name(engine_model_name)
        if self._written is not None and is_artifact(self._written):
            builder.model_dir(str(self._written.parent), self._written.name)
        else:
            builder.model_file_path(self.hf_model_path, "")
        if max_context_length > 0:
            builder.max_length(max_context_length)
        return builder.compute_unit(device_type, device_ids).max_batch(max_batch)

    def __repr__(self) -> str:
        return f"HuggingFaceModel({self.hf_model_path!r}, {self.pretrain_model_name!r})"

    @cached_property
    def _text_files(self) -> tuple[Tokenizer, Mapping[str, Any]]:
        """Tokenizer and recommended options, from the files a conversion would keep."""
        was_open = self._checkpoint is not None
        with tempfile.TemporaryDirectory() as folder:
            self._opened().write_tokenizer(Path(folder))
            found = Tokenizer.load(folder), model_defaults(Path(folder))
        if not was_open:
            self.free_model()
        return found

    def _opened(self) -> Checkpoint:
        if self._checkpoint is None:
            self.load_model()
        if self._checkpoint is None:
            raise ConfigError(f"{self.hf_model_path!r:.200} is not open: call load_model")
        return self._checkpoint


def _grouped() -> QuantizeConfig:
    return QuantizeConfig(extra_option={"SubChannel": True, "GroupSize": 64})
