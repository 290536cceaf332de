"""The errors a user can meet, one tree; every message names the thing, the values and the way out.

DashInferLabError
├── ConfigError              an option or environment value that makes no sense
├── HubError                 a model could not be found, fetched or verified
│   └── HubUnreachableError  no network, or the hub does not answer
├── CacheError               something in the cache could not be removed
├── CheckpointError          a model file is missing, truncated or lies about its contents
├── UnsupportedModelError    the file is sound but names something this version cannot run
├── ConversionError          a checkpoint could not be turned into an artifact
├── ArtifactError            a converted model is damaged or from another format version
├── TokenizerError           tokenizer files or a chat template are unusable
├── RequestError             one request is refused; nothing else is touched
└── EngineError              the engine cannot serve
    ├── EngineClosedError    it was closed
    ├── EngineBusyError      its queue is full
    ├── DeadlineError        a request's time was over; the others go on
    ├── NonFiniteError       a request met NaN or infinity and ended; the others go on
    └── SamplingError        no token could be drawn for a request; the others go on
"""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "CacheError",
    "CheckpointError",
    "ConfigError",
    "ConversionError",
    "DashInferLabError",
    "DeadlineError",
    "EngineBusyError",
    "EngineClosedError",
    "EngineError",
    "HubError",
    "HubUnreachableError",
    "NonFiniteError",
    "RequestError",
    "SamplingError",
    "TokenizerError",
    "UnsupportedModelError",
]


class DashInferLabError(Exception):
    """Any error this package raises on purpose."""


class ConfigError(DashInferLabError):
    """An option or environment value makes no sense."""


class HubError(DashInferLabError):
    """A model could not be found, fetched or verified."""


class HubUnreachableError(HubError):
    """There is no network, or the hub does not answer."""


class CacheError(DashInferLabError):
    """Something in the cache could not be removed."""


class CheckpointError(DashInferLabError):
    """A model file is missing, truncated or lies about its contents."""


class UnsupportedModelError(DashInferLabError):
    """The model is sound but names something this version cannot run."""


class ConversionError(DashInferLabError):
    """A checkpoint could not be turned into an artifact."""


class ArtifactError(DashInferLabError):
    """A converted model is damaged or from another format version."""


class TokenizerError(DashInferLabError):
    """Tokenizer files or a chat template are unusable."""


class RequestError(DashInferLabError):
    """One request is refused; no other request is touched."""


class EngineError(DashInferLabError):
    """The engine cannot serve."""


class EngineClosedError(EngineError):
    """The engine was closed."""


class EngineBusyError(EngineError):
    """The engine's queue is full."""


class DeadlineError(EngineError):
    """A request's time was over and it was ended; the others go on."""


class NonFiniteError(EngineError):
    """A request met NaN or infinity and was ended; the others go on."""


class SamplingError(EngineError):
    """No token could be drawn for a request, which was ended; the others go on."""
