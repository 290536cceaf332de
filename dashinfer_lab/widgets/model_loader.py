"""Choose a model, see whether it fits, load it with a bar that says how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.error_words import error_words
from dashinfer_lab.errors import DashInferLabError
from dashinfer_lab.widgets.aside import begin_aside
from dashinfer_lab.widgets.controls import button, observed, row
from dashinfer_lab.widgets.fit import Fit, fit_of
from dashinfer_lab.widgets.fit_html import fit_html, reporting
from dashinfer_lab.widgets.format_controls import format_controls
from dashinfer_lab.widgets.loaded import load_in_place_of
from dashinfer_lab.widgets.loading_state import LoadingState
from dashinfer_lab.widgets.path_here import path_here
from dashinfer_lab.widgets.pulse import Pulse
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["ModelLoader"]


class ModelLoader(View):
    """Load `model` with these `weights`, and keys and values; `options` as `LLM` takes them.

    `fit` loads nothing. A second `load` of the same name, from this cell run again or from
    another loader, closes the former model first. `llm` is what was loaded, None before.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        weights: str = "auto",
        kv_cache_dtype: str = "auto",
        lang: Language | None = None,
        **options: Any,
    ) -> None:
        super().__init__("loader.title", lang)
        self.model, self.weights, self.kv_cache_dtype = str(model), weights, kv_cache_dtype
        self.llm: LLM | None = None
        self._options: Final = options
        self._pulse: Final = Pulse(self._draw)
        self._loading: Final = LoadingState(lambda: self.live and self._pulse.beat())

    def fit(self) -> Fit | None:
        """What the model needs and what is free; None for one that is not on this machine."""
        path, threads = path_here(self.model), self._options.get("threads")
        return path and fit_of(path, self.weights, threads, self.kv_cache_dtype)

    def choose(
        self, *, model: str = "", weights: str = "", kv_cache_dtype: str = ""
    ) -> ModelLoader:
        """Look at another model or format, as the controls do; loads nothing."""
        former = (self.model, self.weights, self.kv_cache_dtype)
        given = (model, weights, kv_cache_dtype)
        chosen = [new or old for new, old in zip(given, former, strict=True)]
        if tuple(chosen) != former:
            self.model, self.weights, self.kv_cache_dtype = chosen
            self._loading.said = ""
            self.redraw()
        return self

    def load(self) -> LLM:
        """Fetch, convert and load; an interrupt leaves nothing half-made. Raises LLM's errors."""
        from dashinfer_lab.llm import LLM

        tell = self._loading.say
        with self._loading.only(self.model):
            tell("", self.say("loader.loading", model=self.model))
            self.llm = None
            told = reporting(lambda drawn: tell("", drawn), self.lang) if self.live else True
            formats = {"weights": self.weights, "kv_cache_dtype": self.kv_cache_dtype}
            given: dict[str, Any] = {"progress": told, **formats, **self._options}
            try:
                self.llm = load_in_place_of(self.model, lambda: LLM(self.model, **given))
            except BaseException as error:
                tell(self.failure("loader.failed", error))
                raise
            tell(note(self.say("loader.loaded", llm=repr(self.llm)), "good"))
            return self.llm

    def __repr__(self) -> str:
        return f"<ModelLoader {self.model}, {self.weights}: {self.llm or 'not loaded'}>"

    def _controls(self) -> list[Any]:
        from ipywidgets import Text

        model = self.bound["model"] = Text(self.model, continuous_update=False)
        observed(model, lambda new: self.choose(model=new), self.say("loader.model"))
        formats = format_controls(self.say, self.weights, self.kv_cache_dtype, self.choose)
        self.bound.update(formats)
        self._button = button(
            self.say("loader.load"),
            lambda: self._loading.is_busy or begin_aside(self.load),
            primary=True,
        )
        return [row(model, *formats.values(), self._button), self.picture]

    def _draw(self) -> None:
        self._button.disabled = self._loading.is_busy
        self.redraw()

    def _end(self) -> None:
        self._pulse.close()

    def _body(self) -> str:
        if self._loading.progress:
            return self._loading.progress
        try:
            return fit_html(self.fit(), self.model, self.lang) + self._loading.said
        except DashInferLabError as error:
            return note(error_words(error, self.lang), "bad") + self._loading.said
