"""The help of the commands in Chinese, laid out by the columns that its characters take.

Typer's own layout counts characters, and cuts words off where they are wider.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from dashinfer_lab.cli.help_words import CHINESE_HELP
from dashinfer_lab.cli.width import padded, width, wrapped

__all__ = ["say_help_in_chinese"]

_TITLES: Final = {"argument": "参数", "option": "选项"}
_WIDEST_NAME: Final = 32
_EXTRAS: Final = {"[default: ": "[默认：", "[required]": "[必填]", "default: ": "默认："}


def say_help_in_chinese(command: Any) -> None:
    """Make `command`, and all below it, say its help in Chinese; what has none keeps its words."""
    command.help = _chinese(command.help)
    command.format_help = partial(_format_help, command)
    for parameter in command.params:
        parameter.help = _chinese(getattr(parameter, "help", None))
    for below in getattr(command, "commands", {}).values():
        say_help_in_chinese(below)


def _chinese(words: str | None) -> str | None:
    return CHINESE_HELP.get(words or "", words)


def _format_help(command: Any, context: Any, formatter: Any) -> None:
    usage = " ".join(command.collect_usage_pieces(context))
    formatter.write(f"用法：{context.command_path} {usage}\n")
    for paragraph in (command.help or "").split("\n\n"):
        formatter.write("\n" + "\n".join(wrapped(paragraph, formatter.width)) + "\n")
    for title, rows in _sections(command, context):
        formatter.write(f"\n{title}：\n")
        formatter.write("".join(f"{line}\n" for line in _table(rows, formatter.width)))


def _sections(command: Any, context: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the titles, and rows of names and help, of what a command has."""
    parameters = [it for it in command.get_params(context) if it.get_help_record(context)]
    for kind, title in _TITLES.items():
        chosen = [it for it in parameters if it.param_type_name == kind]
        if chosen:
            yield title, [_row(*it.get_help_record(context)) for it in chosen]
    below = getattr(command, "commands", {})
    if below:
        yield "命令", [(name, it.help.partition("\n\n")[0]) for name, it in below.items()]


def _row(name: str, told: str) -> tuple[str, str]:
    for english, chinese in _EXTRAS.items():
        told = told.replace(english, chinese)
    head, mark, extra = told.partition("  [")
    return name, (_chinese(head) or "") + mark + extra


def _table(rows: Sequence[tuple[str, str]], columns: int) -> Iterator[str]:
    """Yield the lines of two columns, the second wrapped; a name too wide has its own line."""
    widest = min(_WIDEST_NAME, max(width(name) for name, _ in rows))
    for name, told in rows:
        first, *others = wrapped(told, max(20, columns - widest - 4)) or [""]
        if width(name) > widest:
            yield f"  {name}"
            name = ""
        yield f"  {padded(name, widest)}  {first}".rstrip()
        yield from (f"  {' ' * widest}  {line}" for line in others)
