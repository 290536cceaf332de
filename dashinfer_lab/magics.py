"""`%load_ext dashinfer_lab`: `%%chat` talks to a model, `%%profile` profiles a cell.

Knows IPython; what is said and drawn comes from the views.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from dashinfer_lab.config import cache_root, default_language
from dashinfer_lab.error_words import error_words
from dashinfer_lab.errors import ConfigError, DashInferLabError
from dashinfer_lab.log_words import warnings_kept
from dashinfer_lab.widgets.chat_session import ChatSession
from dashinfer_lab.widgets.sampling_controls import chat_params
from dashinfer_lab.widgets.words import say

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from jit_kernels.bench import Roof

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

_ROOF_SECONDS: Final = 0.6
_SAMPLING: Final = {"temperature": float, "top_p": float, "top_k": int, "max_tokens": int}


def load_ipython_extension(shell: Any) -> None:
    """Give `shell` the magics."""
    magics = _Magics(shell)
    shell.register_magic_function(magics.chat, "cell", "chat")
    shell.register_magic_function(magics.profile, "cell", "profile")


def unload_ipython_extension(shell: Any) -> None:
    """Take them away."""
    for name in ("chat", "profile"):
        shell.magics_manager.magics["cell"].pop(name, None)


class _Magics:
    def __init__(self, shell: Any) -> None:
        self._shell: Final = shell
        self._sessions: Final[weakref.WeakKeyDictionary[LLM, ChatSession]] = (
            weakref.WeakKeyDictionary()
        )

    def chat(self, line: str, cell: str) -> None:
        """Say the cell to a model; the conversation goes on from cell to cell.

        %%chat [LLM] [--new] [--system TEXT] [--temperature T] [--top-p P] [--top-k K]
        [--max-tokens N] [--seed S] [-o NAME]

        LLM: name of a variable; the only loaded model where it is not given.  --new: begin a new
        conversation.  -o: variable for the answer. An interrupt keeps what came.
        """
        with _told_briefly():
            self._chat(_parsed("%%chat", line, _chat_options), cell)

    def _chat(self, options: Any, cell: str) -> None:
        llm = self._llm(options.llm)
        changes = {name: getattr(options, name) for name in (*_SAMPLING, "seed")}
        given = {name: value for name, value in changes.items() if value is not None}
        printer = _Printer()
        if options.new or llm not in self._sessions:
            self._sessions[llm] = ChatSession(weakref.proxy(llm), "", _said, printer.nothing)
        session = self._sessions[llm]
        session.system = session.system if options.system is None else options.system
        session.changed = lambda: printer.show(session)
        is_heard = logging.getLogger().hasHandlers()  # where somebody configured the log
        with warnings_kept() as warned:
            try:
                turn = session.answer(cell.strip(), replace(chat_params(llm), **given))
            finally:
                printer.finish(session)
                if not is_heard:
                    sys.stderr.write("".join(f"{words}\n" for words in warned))
        if turn.error is not None:
            raise turn.error
        if options.output:
            self._shell.user_ns[options.output] = turn.answer

    def profile(self, line: str, cell: str) -> None:
        """Run the cell, time every operation of the model's steps meanwhile, and show them.

        %%profile [LLM] [--no-roof] [--save FILE] [-o NAME]

        --no-roof: do not measure what the machine can do.  --save: .json, .trace.json, .html,
        .png or .txt.  -o: variable for the profile.
        """
        from IPython.display import display

        from dashinfer_lab.profiling import OpProfile, require_savable
        from dashinfer_lab.widgets import ProfileDashboard

        with _told_briefly():
            options = _parsed("%%profile", line, _profile_options)
            if options.save:
                require_savable(options.save)
            llm = self._llm(options.llm)
        with llm.profiling() as recorder:
            self._shell.ex(self._shell.transform_cell(cell))
        found = OpProfile.of(recorder, None if options.no_roof else _roof(llm))
        if options.save:
            found.save(options.save)
        if options.output:
            self._shell.user_ns[options.output] = found
        display(ProfileDashboard(found))

    def _llm(self, name: str | None) -> LLM:
        """The model that `name` names, or the only one there is."""
        loaded = {key: llm for key, value in self._shell.user_ns.items() if (llm := _loaded(value))}
        if name is not None:
            if name not in loaded:
                raise ConfigError(f"{name} is no loaded model{_offer(loaded)}")
            return loaded[name]
        different = {id(llm): llm for key, llm in loaded.items() if not key.startswith("_")}
        if len(different) != 1:
            raise ConfigError(f"{len(different)} models are loaded, name one{_offer(loaded)}")
        return next(iter(different.values()))


class _Printer:
    """Writes an answer as it grows; what steers a terminal is left out."""

    def __init__(self) -> None:
        self._written = 0

    def nothing(self) -> None:
        """Before there is anything to write."""

    def show(self, session: ChatSession) -> None:
        """Write what is new."""
        text = session.turns[-1].answer
        new, self._written = text[self._written :], len(text)
        sys.stdout.write("".join(c for c in new if c.isprintable() or c in "\n\t"))
        sys.stdout.flush()

    def finish(self, session: ChatSession) -> None:
        """Write the rest, and the figures below it."""
        if session.turns:
            self.show(session)
            sys.stdout.write(f"\n\n[{session.turns[-1].note}]\n")


@contextmanager
def _told_briefly() -> Generator[None]:
    """Show errors of ours as their words alone: a magic's own lines say nothing of the cell."""
    try:
        yield
    except DashInferLabError as error:
        words = f"{type(error).__name__}: {error_words(error, default_language())}"
        vars(error)["_render_traceback_"] = lambda: [words]  # IPython's way to say so
        raise


class _Parser(argparse.ArgumentParser):
    """Refuses what it does not understand without ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}; {self.format_usage().strip()}")


def _parsed(name: str, line: str, add: Callable[[_Parser], None]) -> Any:
    parser = _Parser(name, add_help=False)
    parser.add_argument("llm", nargs="?")
    parser.add_argument("-o", "--output")
    add(parser)
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:  # a quotation mark without its fellow
        raise ConfigError(f"{name} {line}: {error}") from error


def _chat_options(parser: _Parser) -> None:
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--system")
    parser.add_argument("--seed", type=int)
    for name, kind in _SAMPLING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)


def _profile_options(parser: _Parser) -> None:
    parser.add_argument("--no-roof", action="store_true")
    parser.add_argument("--save")


def _loaded(value: object) -> LLM | None:
    """`value`, or what a loader has loaded, where it is a model that takes requests."""
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.widgets import ModelLoader

    found = value.llm if isinstance(value, ModelLoader) else value
    return found if isinstance(found, LLM) and found.engine.alive else None


def _offer(loaded: Mapping[str, LLM]) -> str:
    names = [name for name in loaded if not name.startswith("_")]
    if not names:
        return ': load one first, such as llm = LLM("smollm2-135m")'
    return f": {', '.join(names)}"


def _roof(llm: LLM) -> Roof:
    from jit_kernels.bench import measure_roof
    from jit_kernels.compiler.jit import compiler_for
    from jit_kernels.isa import detect

    compiler = compiler_for(detect(), cache_root() / "objects")
    return measure_roof(llm.threads, compiler, seconds=_ROOF_SECONDS)


def _said(key: str, **values: object) -> str:
    return say(default_language(), key, **values)
