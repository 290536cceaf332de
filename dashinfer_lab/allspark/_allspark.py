"""DashInfer's enumerations under its names, and which of them an error is."""

from __future__ import annotations

import enum

from dashinfer_lab.errors import (
    ArtifactError,
    CheckpointError,
    ConfigError,
    DashInferLabError,
    EngineBusyError,
    EngineClosedError,
    HubError,
    RequestError,
)
from dashinfer_lab.prompt_encoder import TextTooLongError

__all__ = [
    "AsCacheMode",
    "AsMHAPrefill",
    "AsStatus",
    "GenerateRequestStatus",
    "TargetDevice",
    "TooLongError",
    "status_of",
]


class AsStatus(enum.IntEnum):
    """What a call came to; all but success and streaming are failures."""

    ALLSPARK_SUCCESS = 0
    ALLSPARK_UNKNOWN_ERROR = 1
    ALLSPARK_PARAM_ERROR = 2
    ALLSPARK_IO_ERROR = 3
    ALLSPARK_MEMORY_ERROR = 4
    ALLSPARK_RUNTIME_ERROR = 5
    ALLSPARK_EXCEED_LIMIT_ERROR = 7
    ALLSPARK_INVALID_CALL_ERROR = 8
    ALLSPARK_EMPTY_REQUEST = 9
    ALLSPARK_ILLEGAL_REQUEST_ID = 10
    ALLSPARK_CACHE_MEMORY_OUT = 11
    ALLSPARK_REQUEST_DENIED = 12
    ALLSPARK_CHUNK_PREFILL = 14
    ALLSPARK_DEPRECATED = 20
    ALLSPARK_STREAMING = 200

    def __str__(self) -> str:
        return f"AsStatus.{self.name}"


class GenerateRequestStatus(enum.IntEnum):
    """How far a request is; GenerateInterrupted is one that was stopped."""

    Init = 0
    ContextFinished = 1
    Generating = 2
    GenerateFinished = 3
    GenerateInterrupted = 4
    InternalError = 5

    def __str__(self) -> str:
        return f"GenerateRequestStatus.{self.name}"


class TargetDevice(enum.Enum):
    """Devices a DashInfer configuration may name; models run on CPUs here."""

    CUDA = "CUDA"
    CPU = "CPU"
    CPU_NUMA = "CPU_NUMA"


class AsCacheMode(enum.Enum):
    """Formats of keys and values; the default is float32 where it fits."""

    AsCacheDefault = 0
    AsCacheQuantI8 = 1
    AsCacheQuantU4 = 2


class AsMHAPrefill(enum.Enum):
    """Ways to compute a prompt's attention; the kernels here are one way of their own."""

    AsPrefillDefault = 0
    AsPrefillFlashV2 = 10
    AsPrefillXformer = 20


class TooLongError(RequestError):
    """A prompt leaves no room within the longest sequence."""


_STATUSES: tuple[tuple[type[BaseException], AsStatus], ...] = (
    (TooLongError, AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR),
    (TextTooLongError, AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR),
    (EngineBusyError, AsStatus.ALLSPARK_REQUEST_DENIED),
    (EngineClosedError, AsStatus.ALLSPARK_INVALID_CALL_ERROR),
    (RequestError, AsStatus.ALLSPARK_PARAM_ERROR),
    (ConfigError, AsStatus.ALLSPARK_PARAM_ERROR),
    (HubError, AsStatus.ALLSPARK_IO_ERROR),
    (CheckpointError, AsStatus.ALLSPARK_IO_ERROR),
    (ArtifactError, AsStatus.ALLSPARK_IO_ERROR),
    (MemoryError, AsStatus.ALLSPARK_MEMORY_ERROR),
    (DashInferLabError, AsStatus.ALLSPARK_RUNTIME_ERROR),
)


def status_of(error: BaseException) -> AsStatus:
    """The status that names an error's kind."""
    found = (status for kind, status in _STATUSES if isinstance(error, kind))
    return next(found, AsStatus.ALLSPARK_UNKNOWN_ERROR)
