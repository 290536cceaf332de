"""Continuous batching: requests in, tokens out; knows no model beyond `ModelRunner`."""

from __future__ import annotations

from dashinfer_lab.engine.batch import Chunk, ChunkResult, LogitRows, ModelRunner

__all__ = ["Chunk", "ChunkResult", "LogitRows", "ModelRunner"]
