"""What a newcomer may try next, spelt so that it works where it is pasted; runs nothing."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.width import padded, width

__all__ = ["command_name", "next_steps"]


def next_steps(model: str, program: str) -> str:
    """Lay out commands for `model`, each with what it does, for a shell that knows `program`."""
    quoted = shlex.quote(model)
    commands = {
        "chat": f"{program} chat {quoted}",
        "run": f'{program} run {quoted} "Once upon a time"',
        "profile": f"{program} profile {quoted}",
        "bench": f"{program} bench {quoted}",
        "info": f"{program} info",
    }
    widest = max(width(command) for command in commands.values())
    lines = [
        f"  {padded(command, widest)}   {text(f'quickstart.{name}')}"
        for name, command in commands.items()
    ]
    return "\n".join([text("quickstart.next"), *lines])


def command_name(called: str) -> str:
    """Return how a shell in this directory reaches the program that was called as `called`.

    Its name where the shell finds it, its path where an environment is not activated.
    """
    path = Path(called)
    if path.name != "dashinfer-lab":
        return f"{shlex.quote(sys.executable)} -m dashinfer_lab"
    found = shutil.which(path.name)
    if found is not None and Path(found).samefile(path):
        return path.name
    return shlex.quote(called)
