"""The command line: parses and calls, nothing else; knows neither models nor kernels."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an interrupt may come while it is loaded."""
    try:
        from dashinfer_lab.cli import app
    except KeyboardInterrupt:
        return 130
    return app.main(arguments)
