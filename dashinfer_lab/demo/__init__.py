"""The chat in a browser: a Gradio page over the engine, served on this machine alone."""

from __future__ import annotations

from dashinfer_lab.demo.server import Demo, DemoOptions, serve

__all__ = ["Demo", "DemoOptions", "serve"]
