"""DashInfer's Python surface on this package's engine; `import` is all that changes."""

from __future__ import annotations

from dashinfer_lab.allspark._allspark import (
    AsCacheMode,
    AsMHAPrefill,
    AsStatus,
    GenerateRequestStatus,
    TargetDevice,
)
from dashinfer_lab.allspark.engine import ClientEngine, Engine
from dashinfer_lab.allspark.engine_stat import AsEngineStat
from dashinfer_lab.allspark.generation_config import ASGenerationConfigBuilder
from dashinfer_lab.allspark.json_config import ConfigManager, ModelDescription
from dashinfer_lab.allspark.model_config import AsModelConfig
from dashinfer_lab.allspark.model_loader import HuggingFaceModel
from dashinfer_lab.allspark.prompt_utils import PromptTemplate
from dashinfer_lab.allspark.quantization import QuantizeConfig
from dashinfer_lab.allspark.result_queue import GeneratedElements, ResultQueue
from dashinfer_lab.allspark.runtime_config import AsModelRuntimeConfigBuilder
from dashinfer_lab.allspark.served import RequestId

__all__ = [
    "ASGenerationConfigBuilder",
    "AsCacheMode",
    "AsEngineStat",
    "AsMHAPrefill",
    "AsModelConfig",
    "AsModelRuntimeConfigBuilder",
    "AsStatus",
    "ClientEngine",
    "ConfigManager",
    "Engine",
    "GenerateRequestStatus",
    "GeneratedElements",
    "HuggingFaceModel",
    "ModelDescription",
    "PromptTemplate",
    "QuantizeConfig",
    "RequestId",
    "ResultQueue",
    "TargetDevice",
]
