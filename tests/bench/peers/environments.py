"""An environment for each engine, apart from ours: made once, and made again when it changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.bench.peers.recipes import Recipe

__all__ = ["LeftOutError", "installed"]

_STAMP = ".installed"


class LeftOutError(Exception):
    """An engine cannot be measured here, and why."""


def installed(recipe: Recipe, folder: Path, python: str, minutes: float) -> Path:
    """Return the Python of `recipe`'s environment below `folder`, made where it is not there yet.

    Raises LeftOutError with the installer's last complaint; all it said is in install.log.
    """
    if not recipe.requirements:
        return Path(sys.executable)
    place = folder / recipe.name
    environment = place / "env"
    stamp, interpreter = environment / _STAMP, environment / "bin" / "python"
    made_of = recipe.requirements, recipe.options, recipe.environment
    digest = hashlib.sha256(repr(made_of).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return interpreter
    place.mkdir(parents=True, exist_ok=True)
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check"]
    commands = [
        [python, "-m", "venv", str(environment)],
        [*pip, "install", *recipe.options, *recipe.requirements],
    ]
    if recipe.unwanted:
        commands.append([*pip, "uninstall", "--yes", *recipe.unwanted])
    log = place / "install.log"
    with log.open("wb") as output:
        for command in commands:
            _run(command, os.environ | dict(recipe.environment), output.fileno(), log, minutes)
    stamp.write_text(digest, encoding="utf-8")
    return interpreter


def _run(
    command: list[str], environment: dict[str, str], output: int, log: Path, minutes: float
) -> None:
    try:
        ended = subprocess.run(
            command,
            env={name: value for name, value in environment.items() if name != "PYTHONPATH"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=minutes * 60,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LeftOutError(f"not installed within {minutes:g} minutes (see {log})") from error
    except OSError as error:
        raise LeftOutError(f"{command[0]} cannot be run: {error}") from error
    if ended.returncode:
        raise LeftOutError(f"not installed: {_complaint(log)} (see {log})")


def _complaint(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.strip() for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1][:200]
