"""A Jinja environment for templates nobody has read: immutable, bounded, without files.

Knows what chat templates in the wild use (loop controls, `generation`, `raise_exception`,
`strftime_now`, `tojson` without ASCII escapes); knows no tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
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

_LOOKING_INTO = frozenset({"changed", "count", "format", "format_map", "get", "index"})
_COUNTED = "_counted_steps"
_MADE = "_counted_size"
_REMOVED_FILTERS = ("pprint", "random", "urlize", "wordwrap", "xmlattr", "center")
_PICKING = frozenset(
    "attr batch boolean callable count d default defined false first float integer items iterable "
    "last length list map mapping none number reject rejectattr reverse select selectattr sequence "
    "slice string true undefined".split()
)
"""Filters and tests that neither compare parts of what they are given nor make text of them."""
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
        finalize=_made,
    )
    names = cast("dict[str, object]", environment.globals)
    filters = cast("dict[str, Callable[..., Any]]", environment.filters)
    for name in _REMOVED_GLOBALS:
        del names[name]
    for name in _REMOVED_FILTERS:
        del filters[name]
    filters["tojson"] = _to_json
    tests = cast("dict[str, Callable[..., Any]]", environment.tests)
    for name, function in list(filters.items()):
        filters[name] = _bounded(function, picks=name in _PICKING and name != "string", name=name)
    for name, function in list(tests.items()):
        tests[name] = _bounded(function, picks=name in _PICKING, name=name)
    filters[_COUNTED] = _steps
    filters[_MADE] = _made

    def strftime_now(layout: str) -> str:
        return now().strftime(layout)

    names["raise_exception"] = _refuse
    names["strftime_now"] = strftime_now
    return environment


def _steps(iterable: Iterable[Any]) -> Iterable[Any]:
    return BUDGET.get().steps(iterable)


def _made(value: Any) -> Any:
    return BUDGET.get().made(value)


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


def _bounded(function: Callable[..., Any], *, picks: bool, name: str) -> Callable[..., Any]:
    """Return the filter or test `function`, counting what it is given and what it makes."""

    @wraps(function)
    def bounded(*arguments: Any, **options: Any) -> Any:
        budget = BUDGET.get()
        budget.call()
        if not picks:
            budget.made(arguments)
        budget.before_call(name, (*arguments, *options.values()))
        return budget.shown(function(*arguments, **options))

    return bounded


def _count(template: nodes.Template) -> None:
    """Make every loop, concatenation, comparison and look-up of `template` count its work."""
    from jinja2 import nodes

    def counted(expression: nodes.Expr, by: str = _MADE) -> nodes.Expr:
        if isinstance(expression, nodes.Const | nodes.Slice):
            return expression
        return nodes.Filter(expression, by, [], [], None, None, lineno=expression.lineno)

    kinds = (nodes.For, nodes.Concat, nodes.Compare, nodes.Operand, nodes.Pair, nodes.Getitem)
    for node in list(template.find_all(kinds)):
        if isinstance(node, nodes.For):
            node.iter = counted(cast("nodes.Expr", node.iter), _COUNTED)
        elif isinstance(node, nodes.Concat):
            node.nodes = [counted(part) for part in node.nodes]
        elif isinstance(node, nodes.Compare | nodes.Operand):
            node.expr = counted(node.expr)
        elif isinstance(node, nodes.Pair):
            node.key = counted(node.key)
        else:
            node.arg = counted(node.arg)


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
            budget.call()
            name, owner = getattr(__obj, "__name__", ""), getattr(__obj, "__self__", None)
            if isinstance(owner, str):
                budget.before_call(name, (owner, *arguments, *options.values()))
            if name in _LOOKING_INTO:
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
