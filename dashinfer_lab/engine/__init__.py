"""Continuous batching: requests in, tokens out; knows no model beyond `ModelRunner`."""

from __future__ import annotations

from dashinfer_lab.engine.batch import Chunk, ChunkResult, LogitRows, ModelRunner
from dashinfer_lab.engine.engine import Engine, EngineStats
from dashinfer_lab.engine.handle import RequestHandle
from dashinfer_lab.engine.options import EngineOptions
from dashinfer_lab.engine.request_options import RequestOptions
from dashinfer_lab.engine.text_stream import DecoderFactory, IncrementalDecoder

__all__ = [
    "Chunk",
    "ChunkResult",
    "DecoderFactory",
    "Engine",
    "EngineOptions",
    "EngineStats",
    "IncrementalDecoder",
    "LogitRows",
    "ModelRunner",
    "RequestHandle",
    "RequestOptions",
]
