"""The commands put together, and how each way of ending becomes an exit code.

0 done · 1 an error of ours or of the system, or a benchmark below its baseline · 2 wrong usage
130 interrupted
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, cast

import typer
from typer.main import get_command

from dashinfer_lab import __version__
from dashinfer_lab.cli.bench import bench
from dashinfer_lab.cli.chat import chat
from dashinfer_lab.cli.chinese_help import say_help_in_chinese
from dashinfer_lab.cli.convert import convert
from dashinfer_lab.cli.demo import demo
from dashinfer_lab.cli.info import info
from dashinfer_lab.cli.messages import choose_language, language, text
from dashinfer_lab.cli.models import models
from dashinfer_lab.cli.output import print_error, print_json, remark
from dashinfer_lab.cli.plain_usage import spell_plainly
from dashinfer_lab.cli.profile import profile
from dashinfer_lab.cli.pull import pull
from dashinfer_lab.cli.quickstart import quickstart
from dashinfer_lab.cli.run import run
from dashinfer_lab.cli.show import show
from dashinfer_lab.cli.stored import cache, list_models, rm
from dashinfer_lab.cli.tune import tune
from dashinfer_lab.config import Language, default_language
from dashinfer_lab.errors import ConfigError, DashInferLabError
from dashinfer_lab.log_words import log_in
from jit_kernels.errors import JitKernelsError

__all__ = ["build", "main"]

# Typer ships its own click, in which a usage error's class has no public name but as the base of
# `BadParameter`.
_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__mro__[1])
_EXPECTED = (DashInferLabError, JitKernelsError, OSError, MemoryError)


class _Language(str, Enum):
    """Values of `--lang`."""

    EN = "en"
    ZH = "zh"


def build() -> typer.Typer:
    """Assemble the commands."""
    app = typer.Typer(
        name="dashinfer-lab",
        help="Run large language models on CPUs.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (info, quickstart, pull, convert, run, chat, bench, profile, show):
        app.command()(command)
    for command in (tune, demo, models, rm, cache):
        app.command()(command)
    app.command("list")(list_models)

    app.callback(invoke_without_command=False)(_root)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        print(f"dashinfer-lab {__version__}")
        raise typer.Exit


def _root(
    lang: Annotated[
        _Language | None, typer.Option(help="Language of messages; by default the locale's.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Run large language models on CPUs."""
    if lang is not None:
        choose_language(lang.value)


def _open_closed_streams() -> None:
    """Give a process without stdin or stderr empty ones, lest a file of ours takes their place."""
    for name, mode in (("stdin", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  # it stays open
            setattr(sys, name, stream)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    _open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    as_json = "--json" in given
    if sys.stdout is None:
        print_error(ConfigError("stdout is closed: redirect it, to /dev/null if not wanted"))
        return 1
    choose_language(_asked_language(given) or default_language())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a model's characters
    try:
        return _ended(given, as_json=as_json)
    finally:
        log_in(None)


def _asked_language(given: Sequence[str]) -> Language | None:
    """The language that `--lang` asks for before the command, which help texts need at once."""
    for option, value in zip(given, [*given[1:], ""], strict=True):
        name, _, told = option.partition("=")
        if name == "--lang":
            wanted = told or value
            return "zh" if wanted == "zh" else "en" if wanted == "en" else None
        if not option.startswith("-"):
            return None
    return None


def _ended(given: list[str], *, as_json: bool) -> int:
    """Run the command that `given` names and return the exit code."""
    command = get_command(build())
    spell_plainly(command)
    if language() == "zh":
        say_help_in_chinese(command)
    try:
        code = command(given, prog_name="dashinfer-lab", standalone_mode=False)
    except _UsageError as error:
        if language() == "zh":
            remark(text("usage"))
        error.show()
        if as_json:
            print_json({"error": {"type": "UsageError", "message": error.format_message()}})
        return 2
    except _EXPECTED as error:
        print_error(error, as_json=as_json)
        return 1
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    if code == 130:
        print_error(KeyboardInterrupt("interrupted"), as_json=as_json)
    return code if isinstance(code, int) else 0
