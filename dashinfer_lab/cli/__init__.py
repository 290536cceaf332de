"""The command line: parses and calls, nothing else; knows neither models nor kernels."""

from __future__ import annotations

from dashinfer_lab.cli.app import main

__all__ = ["main"]
