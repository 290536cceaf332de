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
from dashinfer_lab.tokenizer.growth import before_call, before_format, before_json

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["BUDGET", "sandbox"]

BUDGET: ContextVar[Budget] = ContextVar("BUDGET")
"""The budget of the rendering in progress; set anew for each."""

_COUNTED = "_counted_steps"
_MADE = "_counted_size"
_SHOWN = "_counted_length"
_REMOVED_FILTERS = ("pprint", "random", "urlize", "wordwrap", "xmlattr", "center")
_PICKING = frozenset(
    "attr batch boolean callable count d default defined false first float integer items iterable "
    "last length list map mapping none number reject rejectattr reverse select selectattr sequence "
    "slice string true undefined".split()
)
"""Filters and tests that neither compare parts of what they are given nor make text of them."""
_REMOVED_GLOBALS = ("cycler", "joiner", "lipsum")
_REMOVED_METHODS = frozenset(
    "decode encode from_bytes fromhex fromkeys maketrans to_bytes translate".split()
)
"""Bytes, tables of characters and the like: no chat needs them."""
_WORDS_LIMIT = 2000


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
    filters[_SHOWN] = _shown

    def strftime_now(layout: str) -> str:
        return now().strftime(layout)

    names["namespace"] = _namespace_class()
    names["raise_exception"] = _refuse
    names["strftime_now"] = strftime_now
    return environment


def _steps(iterable: Iterable[Any]) -> Iterable[Any]:
    return BUDGET.get().steps(iterable)


def _made(value: Any) -> Any:
    return BUDGET.get().made(value)


def _shown(value: Any) -> Any:
    return BUDGET.get().shown(value)


def _refuse(message: object) -> NoReturn:
    words = str(message)[:_WORDS_LIMIT]
    raise RequestError(f"the chat template refuses these messages: {words}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON for a model to read: neither ASCII nor HTML escapes."""
    before_json(BUDGET.get(), value, indent, separators)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _bounded(function: Callable[..., Any], *, picks: bool, name: str) -> Callable[..., Any]:
    """Return the filter or test `function`, counting what it is given and what it makes."""
    num_own = 1 if getattr(function, "jinja_pass_arg", None) else 0  # Jinja's, not the template's

    @wraps(function)
    def bounded(*arguments: Any, **options: Any) -> Any:
        budget = BUDGET.get()
        budget.call()
        count = budget.shown if picks else budget.held
        own, given = arguments[:num_own], [count(it) for it in arguments[num_own:]]
        options = {key: count(it) for key, it in options.items()}
        before_call(budget, name, (*given, *options.values()))
        return budget.shown(function(*own, *given, **options))

    return bounded


def _count(template: nodes.Template) -> None:
    """Make every text, loop, concatenation, comparison and look-up of `template` count its work."""
    from jinja2 import nodes

    def counted(expression: nodes.Expr, by: str = _MADE) -> nodes.Expr:
        if isinstance(expression, nodes.Const):
            return expression
        return nodes.Filter(expression, by, [], [], None, None, lineno=expression.lineno)

    def written(part: nodes.Expr) -> nodes.Expr:
        if not isinstance(part, nodes.TemplateData):
            return part
        text = nodes.Const(part.data, lineno=part.lineno)
        return nodes.Filter(text, _SHOWN, [], [], None, None, lineno=part.lineno)

    kinds = (nodes.For, nodes.Concat, nodes.Compare, nodes.Operand, nodes.Pair, nodes.Getitem)
    for node in list(template.find_all((*kinds, nodes.Output))):
        if isinstance(node, nodes.Output):
            node.nodes = [written(part) for part in node.nodes]
        elif isinstance(node, nodes.For):
            node.iter = counted(cast("nodes.Expr", node.iter), _COUNTED)
        elif isinstance(node, nodes.Concat):
            node.nodes = [counted(part) for part in node.nodes]
        elif isinstance(node, nodes.Compare | nodes.Operand):
            node.expr = counted(node.expr)
        elif isinstance(node, nodes.Pair):
            node.key = counted(node.key)
        elif isinstance(node.arg, nodes.Slice):  # what is cut counts whole
            node.node = counted(node.node, _SHOWN)
        else:
            node.arg = counted(node.arg)


@cache
def _environment_class() -> type[ImmutableSandboxedEnvironment]:
    from jinja2.runtime import Context, LoopContext, Macro
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class ChatSandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

        def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
            _count(source)
            return super()._generate(source, *arguments, **options)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            return attr not in _REMOVED_METHODS and super().is_safe_attribute(obj, attr, value)

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            budget = BUDGET.get()
            budget.before_operator(operator, left, right)
            if operator == "%" and isinstance(left, str):
                values = cast("tuple[Any, ...]", right) if isinstance(right, tuple) else (right,)
                before_format(budget, left, values)
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
            if isinstance(__obj, Macro):  # what it does with them counts there
                budget.spend(len(arguments) + len(options))
            elif isinstance(__obj, LoopContext):
                arguments = tuple(map(budget.steps, arguments))
            else:
                arguments = tuple(map(budget.held, arguments))
                options = {key: budget.held(it) for key, it in options.items()}
                owner = getattr(__obj, "__self__", None)
                own = () if owner is None else (_looked_through(budget, owner),)
                name = getattr(__obj, "__name__", "")
                before_call(budget, name, (*own, *arguments, *options.values()))
            return budget.shown(super().call(__context, __obj, *arguments, **options))

        def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
            wrapped = super().wrap_str_format(value)
            if wrapped is None:
                return None

            @wraps(wrapped)
            def bounded(*values: Any, **named: Any) -> str:
                before_format(BUDGET.get(), value.__self__, (*values, *named.values()))
                return wrapped(*values, **named)

            return bounded

    return ChatSandbox


def _looked_through(budget: Budget, owner: Any) -> Any:
    """Count what a method may look through: a text, or a list with all that is in it."""
    return budget.made(owner) if isinstance(owner, list | tuple) else budget.shown(owner)


@cache
def _namespace_class() -> type[object]:
    from jinja2.utils import Namespace

    class BriefNamespace(Namespace):
        """A namespace that does not write out all that it holds where it is shown."""

        def __repr__(self) -> str:
            return "<namespace>"

    return BriefNamespace


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
