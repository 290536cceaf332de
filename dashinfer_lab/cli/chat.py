"""`dashinfer-lab chat`: a conversation in the terminal, or one line after another from a pipe."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dashinfer_lab.cli.conversation import Conversation
from dashinfer_lab.cli.figures import Figures
from dashinfer_lab.cli.interruption import Interruption
from dashinfer_lab.cli.loading import load, weights_facts
from dashinfer_lab.cli.messages import text
from dashinfer_lab.cli.options import (
    AsJson,
    ChatTemplate,
    ContextLength,
    KvCacheDtype,
    Model,
    Threads,
    Weights,
)
from dashinfer_lab.cli.output import print_error, print_json, remark, warnings_after
from dashinfer_lab.errors import NonFiniteError, RequestError
from dashinfer_lab.tokenizer import SystemMessageWarning

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["chat"]

_PROMPT = "> "
_BUILT_IN: dict[str, Any] = {"temperature": 0.7, "top_p": 0.95}


def chat(
    model: Model,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System prompt.")] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="0 takes the likeliest token; by default as the model states, or 0.7."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Mass of the likeliest tokens kept; as the model states, or 0.95."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.")] = 512,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = None,
    chat_template: ChatTemplate = None,
    weights: Weights = "auto",
    kv_cache_dtype: KvCacheDtype = "auto",
    context_length: ContextLength = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Talk with MODEL: answers stream, Ctrl-C stops one, Ctrl-D leaves, /help tells the rest.

    Lines of a pipe are messages; only answers go to stdout.
    """
    from dashinfer_lab import SamplingParams

    given: dict[str, Any] = {"temperature": temperature, "top_p": top_p}
    asked = {name: value for name, value in given.items() if value is not None}
    params = SamplingParams(**{**_BUILT_IN, **asked}, max_tokens=max_tokens, seed=seed)
    interactive = sys.stdin.isatty()
    conversation = Conversation(system)
    with load(
        model,
        weights,
        threads,
        kv_cache_dtype,
        context_length=context_length,
        chat_template=chat_template,
        as_json=as_json,
    ) as llm:
        stated = {name: it for name, it in llm.sampling_defaults.items() if name not in asked}
        params = replace(params, **stated)
        if not as_json:
            _remark_on_layout_and_sampling(llm, stated)
        if interactive:
            remark(text("chat.ready", model=model, isa=llm.isa, threads=llm.threads))
        turns: list[dict[str, object]] = []
        for message in _messages(conversation, interactive):
            try:
                turns.append(_answer(llm, conversation, message, params, echo=not as_json))
            except (RequestError, NonFiniteError) as error:
                if not interactive:
                    raise
                print_error(error, as_json=False)
        if as_json:
            sampling = {name: getattr(params, name) for name in {**_BUILT_IN, **stated}}
            facts = weights_facts(llm)
            print_json({"model": model, "turns": turns, "sampling": sampling, **facts})


def _remark_on_layout_and_sampling(llm: LLM, stated: dict[str, Any]) -> None:
    """Remark on a layout that stands in for the model's, and on sampling that is the model's."""
    built_in = llm.tokenizer and llm.tokenizer.built_in_format
    if built_in:
        remark(text("chat.built_in", name=built_in))
    if stated:
        listed = ", ".join(f"{name} {value}" for name, value in stated.items())
        remark(text("chat.stated", options=listed))


def _answer(
    llm: LLM, conversation: Conversation, message: str, params: SamplingParams, *, echo: bool
) -> dict[str, object]:
    """Answer `message`; the conversation keeps what was emitted, and nothing after an error."""
    emitted: list[str] = []
    with warnings_after(), Interruption() as interruption:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", SystemMessageWarning)
            handle = llm.submit(conversation.with_message(message), params)
        if conversation.is_new and any(it.category is SystemMessageWarning for it in told):
            remark(text("chat.merged"))
        interruption.stops(handle.cancel)
        for event in handle:
            emitted.append(event.text)
            if echo:
                print(event.text, end="", flush=True)
        if echo:
            print(flush=True)
    answer, figures = "".join(emitted), Figures.of(handle.metrics)
    conversation.keep(message, answer)
    if echo:
        ended = [text("chat.stopped")] if interruption.asked else []
        if handle.finish_reason == "length":
            ended = [text("chat.cut")]
        remark(" · ".join([*ended, str(figures)]))
    finish = {"finish_reason": handle.finish_reason}
    return {"message": message, "text": answer, **finish, **figures.as_dict()}


def _messages(conversation: Conversation, interactive: bool) -> Iterator[str]:
    """What is to be answered; commands are obeyed on the way."""
    for line in _lines(interactive):
        message = conversation.obey(line)
        if conversation.ended:
            return
        if message is not None:
            yield message


def _lines(interactive: bool) -> Iterator[str]:
    """What is typed until Ctrl-D, or Ctrl-C twice at the prompt; or what stdin holds."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    if not interactive:
        yield from iter(sys.stdin.readline, "")
        return
    ask = _ask_with_editing if sys.stdout.isatty() else _ask_on_stderr
    is_leaving = False
    while True:
        try:
            line = ask()
        except (EOFError, KeyboardInterrupt) as ended:
            print(file=sys.stderr)
            if is_leaving or isinstance(ended, EOFError):
                return
            is_leaving = True  # it may have been meant for an answer that had just ended
            remark(text("chat.leave"))
            continue
        is_leaving = False
        yield line


def _ask_with_editing() -> str:
    """Read a line with arrow keys and earlier lines; Ctrl-C drops what is typed, if anything is."""
    try:
        import readline
    except ImportError:
        return input(_PROMPT)
    typed = ""

    def interrupt() -> None:
        nonlocal typed
        typed = readline.get_line_buffer()  # it is lost as soon as `input` ends
        raise KeyboardInterrupt

    try:
        with Interruption() as interruption:
            interruption.stops(interrupt)
            return input(_PROMPT)
    except KeyboardInterrupt:
        if not typed:
            raise
        print()
        return ""


def _ask_on_stderr() -> str:
    """Read a line where stdout is a file, which the prompt has no place in."""
    print(_PROMPT, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
