"""A module's public names and signatures as text, one a line."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType

__all__ = ["surface"]


def surface(module: ModuleType) -> str:
    """Every name of `__all__`; of classes also what is public in them, inherited or not."""
    return "".join(f"{line}\n" for name in sorted(module.__all__) for line in _of(module, name))


def _of(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if isinstance(value, type) and issubclass(value, enum.Enum):
        members = ", ".join(f"{each.name}={each.value!r}" for each in value)
        yield f"{name}: {members}"
    elif isinstance(value, type):
        yield f"{name}{_signature(value)}"
        for member in sorted(_public(value)):
            yield f"    {_member(value, member)}"
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield name


def _public(kind: type) -> Iterable[str]:
    return (name for name in dir(kind) if not name.startswith("_"))


def _member(kind: type, name: str) -> str:
    value = inspect.getattr_static(kind, name)
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    return f"{name}{_signature(value)}" if callable(value) else name


def _signature(value: object) -> str:
    return str(inspect.signature(value))  # type: ignore[arg-type]
