"""Usage and options spelt as manuals spell them: `run [OPTIONS] MODEL PROMPT`; knows no command.

Typer by itself puts what is required in braces and names the type of every flag, `<bool>`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

__all__ = ["spell_plainly"]


def spell_plainly(command: Any) -> None:
    """Make `command`, and all below it, name arguments by their names and flags without a type."""
    command.get_help_option = partial(_help_option, command.get_help_option)
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.get_usage_pieces = partial(_usage_pieces, parameter)
            parameter.display_type_rich = _untyped
        elif parameter.is_flag:
            parameter.display_type_rich = _untyped
    for below in getattr(command, "commands", {}).values():
        spell_plainly(below)


def _usage_pieces(argument: Any, context: Any) -> list[str]:
    name = argument.metavar or argument.name.upper()
    return [name if argument.required else f"[{name}]"]


def _help_option(made: Any, context: Any) -> Any:
    option = made(context)
    if option is not None:
        option.display_type_rich = _untyped
    return option


def _untyped(*_: Any, **__: Any) -> None:
    """Tell no type, whatever of: a name or a flag says it all."""
