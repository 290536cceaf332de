"""A Jinja environment for templates nobody has read: immutable, bounded, without files.

Knows what chat templates in the wild use (loop controls, `generation`, `raise_exception`,
`strftime_now`, `tojson` without ASCII escapes); knows no tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dashinfer_lab.errors import RequestError
from dashinfer_lab.tokenizer.budget import Budget

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["BUDGET", "sandbox"]

BUDGET: ContextVar[Budget] = ContextVar("BUDGET")
"""The budget of the rendering in progress; set anew for each."""

_FORMATTING = ("format", "format_map")
_COUNTED = "_counted_steps"
_MADE = "_counted_size"
_REMOVED_FILTERS = ("pprint", "random", "urlize", "wordwrap", "xmlattr", "center")
_PICKING_FILTERS = frozenset(
    "attr batch count d default first groupby items last length list map max min reject rejectattr "
    "reverse select selectattr slice sort sum unique".split()
)
"""Filters that make no text of the parts of what they are given."""
_REMOVED_GLOBALS = ("cycler", "joiner", "lipsum")


def sandbox(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    """Return an environment in which templates of unknown origin are compiled and rendered."""
    # Constants are not folded: folding would compute before any budget is set.
    environment = _environment_class()(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        cache_size=0,
        extensions=["jinja2.ext.loopcontrols", _generation_tag()],
        finalize=lambda value: BUDGET.get().made(value),
    )
    names = cast("dict[str, object]", environment.globals)
    filters = cast("dict[str, Callable[..., Any]]", environment.filters)
    for name in _REMOVED_GLOBALS:
        del names[name]
    for name in _REMOVED_FILTERS:
        del filters[name]
    filters["tojson"] = _to_json
    for name, function in list(filters.items()):
        filters[name] = _bounded(name, function)
    filters[_COUNTED] = lambda iterable: BUDGET.get().steps(iterable)
    filters[_MADE] = lambda value: BUDGET.get().made(value)
    names["raise_exception"] = _refuse
    names["strftime_now"] = lambda layout: now().strftime(layout)
    return environment


def _refuse(message: str) -> NoReturn:
    raise RequestError(f"the chat template refuses these messages: {message}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON for a model to read: neither ASCII nor HTML escapes."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `function`, counting what it is given and what it makes."""

    @wraps(function)
    def bounded(*arguments: Any, **options: Any) -> Any:
        budget = BUDGET.get()
        budget.step()
        if name not in _PICKING_FILTERS:
            budget.made(arguments)
        budget.before_call(name, (*arguments, *options.values()))
        return budget.shown(function(*arguments, **options))

    return bounded


def _count(template: nodes.Template) -> None:
    """Make every loop and every concatenation of `template` count its work."""
    from jinja2 import nodes

    for loop in list(template.find_all(nodes.For)):
        loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
    for joined in list(template.find_all(nodes.Concat)):
        joined.nodes = [
            nodes.Filter(part, _MADE, [], [], None, None, lineno=joined.lineno)
            for part in joined.nodes
        ]


@cache
def _environment_class() -> type[ImmutableSandboxedEnvironment]:
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class ChatSandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
            _count(source)
            return super()._generate(source, *arguments, **options)

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            budget = BUDGET.get()
            budget.before_operator(operator, left, right)
            return budget.shown(super().call_binop(context, operator, left, right))

        def call(  # the names are Jinja's: keyword arguments of a template must not meet them
            __self,  # noqa: N805
            __context: Context,
            __obj: Any,
            *arguments: Any,
            **options: Any,
        ) -> Any:
            budget = BUDGET.get()
            budget.step()
            name, owner = getattr(__obj, "__name__", ""), getattr(__obj, "__self__", None)
            if isinstance(owner, str):
                budget.before_call(name, (owner, *arguments, *options.values()))
            if name in _FORMATTING:
                budget.made((arguments, options))
            return budget.shown(super().call(__context, __obj, *arguments, **options))

        def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
            wrapped = super().wrap_str_format(value)
            if wrapped is not None:
                BUDGET.get().before_call("format", (value.__self__,))
            return wrapped

    return ChatSandbox


@cache
def _generation_tag() -> type[Extension]:
    from jinja2.ext import Extension

    class GenerationTag(Extension):
        """`{% generation %}…{% endgeneration %}` marks an answer for training; here: its text."""

        tags = {"generation"}  # noqa: RUF012 - Jinja declares it so

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return GenerationTag
