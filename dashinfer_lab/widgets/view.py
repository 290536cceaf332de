"""What all views are: a widget where a front end is live, HTML and text where none is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from html import escape
from importlib.util import find_spec
from typing import Any, Final

from dashinfer_lab.config import Language, default_language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.widgets.theme import STYLE, note
from dashinfer_lab.widgets.words import say

__all__ = ["View", "require"]

_WIDGET: Final = "application/vnd.jupyter.widget-view+json"


class View(ABC):
    """A cell's output that can also be driven by its methods; `close` ends what it has going on."""

    def __init__(self, title: str, lang: Language | None) -> None:
        if lang not in (None, "en", "zh"):
            raise ConfigError(f'lang={lang!r:.80} is not spoken: it is "en" or "zh"')
        self.lang: Final[Language] = lang or default_language()
        self._title: Final = title
        self.bound: Final[dict[str, Any]] = {}

    @cached_property
    def widget(self) -> Any:
        """The ipywidgets box with the controls. Raises `ConfigError` without ipywidgets."""
        if find_spec("ipywidgets") is None:
            raise ConfigError(
                "controls need ipywidgets, which is not installed: pip install ipywidgets"
            )
        from ipywidgets import HTML, VBox

        self.picture.value = self._live()
        box = VBox([HTML(STYLE + self._heading()), *self._controls()])
        box.add_class("dl-view")
        return box

    @cached_property
    def picture(self) -> Any:
        """The part of the widget that is drawn anew."""
        from ipywidgets import HTML

        return HTML()

    @property
    def live(self) -> bool:
        """Whether there is a widget to draw on."""
        return "widget" in self.__dict__

    def redraw(self) -> None:
        """Draw what there is now, and set the controls to it, where there is a widget."""
        if self.live:
            for attribute, control in self.bound.items():
                control.value = getattr(self, attribute)
            self.picture.value = self._live()

    @property
    def html(self) -> str:
        """What there is to see now, as HTML that needs no kernel."""
        return (
            f'{STYLE}<div class="dl-view" lang="{self.lang}">{self._heading()}{self._body()}</div>'
        )

    def say(self, key: str, **values: object) -> str:
        """The words of `key` in the view's language."""
        return say(self.lang, key, **values)

    def failure(self, key: str, error: BaseException) -> str:
        """The words of `key` about `error`, as HTML."""
        return note(self.say(key, message=error), "bad")

    def close(self) -> None:
        """End what goes on, and take the widget away; closing twice is harmless."""
        self._end()
        if self.live:
            self.widget.close()

    @abstractmethod
    def _controls(self) -> list[Any]:
        """Make the widgets below the heading, `picture` among them."""

    @abstractmethod
    def _body(self) -> str:
        """The facts as HTML."""

    def _live(self) -> str:
        """What the picture shows beside controls: by default all there is."""
        return self._body()

    def _end(self) -> None:  # noqa: B027  # most views have nothing going on
        """End what goes on."""

    def _shown(self) -> None:  # noqa: B027  # most views are not told of anything
        """The widget is about to be displayed."""

    def _heading(self) -> str:
        return f'<div class="dl-title">{escape(self.say(self._title))}</div>'

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        bundle: dict[str, object] = {"text/plain": repr(self), "text/html": self.html}
        if find_spec("ipywidgets") is not None:
            model = self.widget.model_id
            bundle[_WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": model}
            self._shown()
        return bundle


def require(name: str, given: str | None, known: Sequence[str]) -> None:
    """Raise `ConfigError` naming what there is, where `given` is something else."""
    if given is not None and given not in known:
        raise ConfigError(f"there is no {name} {given!r:.80}; there are {', '.join(known)}")
