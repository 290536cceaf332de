"""Text to token ids and back, and chat templates; knows nothing of models or engines."""

from __future__ import annotations

from dashinfer_lab.tokenizer.chat import Message
from dashinfer_lab.tokenizer.incremental import IncrementalDecoder
from dashinfer_lab.tokenizer.system_messages import SystemMessageWarning
from dashinfer_lab.tokenizer.tokenizer import Tokenizer

__all__ = ["IncrementalDecoder", "Message", "SystemMessageWarning", "Tokenizer"]
