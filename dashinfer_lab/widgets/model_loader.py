"""Choose a model, see whether it fits, load it with a bar that says how far it is."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError, DashInferLabError
from dashinfer_lab.widgets.controls import button, dropdown, observed, row
from dashinfer_lab.widgets.fit import Fit, available_bytes, fit_of, path_here
from dashinfer_lab.widgets.fit_html import fit_html, progress_html
from dashinfer_lab.widgets.loaded import load_in_place_of
from dashinfer_lab.widgets.pulse import Pulse
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View

if TYPE_CHECKING:
    from dashinfer_lab.convert import ConversionProgress
    from dashinfer_lab.llm import LLM

__all__ = ["ModelLoader"]

_WEIGHTS: Final = ("auto", "a16w8", "a16w8:32", "a16w8:128", "a16w8:row", "bf16", "fp32")


class ModelLoader(View):
    """Load `model` with these `weights`; `options` as `LLM` takes them.

    `fit` costs no memory. A second `load` of the same name, from this cell run again or from
    another loader, closes the former model first. `llm` is what was loaded, None before.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        weights: str = "auto",
        lang: Language | None = None,
        **options: Any,
    ) -> None:
        super().__init__("loader.title", lang)
        self.model, self.weights = str(model), weights
        self.llm: LLM | None = None
        self._options: Final = options
        self._fits: Final[dict[tuple[str, str], Fit]] = {}
        self._loading: Final = threading.Lock()
        self._said = self._progress = ""
        self._pulse: Final = Pulse(self._draw)

    def fit(self) -> Fit | None:
        """What the model needs and what is free; None for one that is not on this machine."""
        path = path_here(self.model)
        if path is None:
            return None
        key = (str(path), self.weights)
        if key not in self._fits:
            self._fits[key] = fit_of(path, self.weights, self._options.get("threads"))
        return replace(self._fits[key], available_bytes=available_bytes())

    def choose(self, *, model: str | None = None, weights: str | None = None) -> ModelLoader:
        """Look at another model or scheme, as the controls do; loads nothing."""
        self.model, self.weights = model or self.model, weights or self.weights
        self._said = ""
        self.redraw()
        return self

    def load(self) -> LLM:
        """Fetch, convert and load; an interrupt leaves nothing half-made. Raises LLM's errors."""
        if not self._loading.acquire(blocking=False):
            raise ConfigError(f"{self.model} is being loaded: wait for it")
        try:
            self._say("", self.say("loader.loading", model=self.model))
            self.llm = load_in_place_of(self.model, self._load)
            self._say(note(self.say("loader.loaded", llm=repr(self.llm)), "good"))
            return self.llm
        except BaseException as error:
            what = str(error) or type(error).__name__
            self._say(note(self.say("loader.failed", message=what), "bad"))
            raise
        finally:
            self._loading.release()

    def __repr__(self) -> str:
        return f"<ModelLoader {self.model}, {self.weights}: {self.llm or 'not loaded'}>"

    def _load(self) -> LLM:
        from dashinfer_lab.llm import LLM
        from dashinfer_lab.progress import LoadProgress

        self.llm = None
        watched = self.live
        told = LoadProgress(self._fetched, self._converted) if watched else True
        return LLM(self.model, weights=self.weights, progress=told, **self._options)

    def _fetched(self, what: str, done: int, total: int) -> None:
        self._say("", progress_html(what, done, total))

    def _converted(self, progress: ConversionProgress) -> None:
        from dashinfer_lab.progress import conversion_pace

        pace = f"{self.say('loader.converting')} · {conversion_pace(progress, self.lang)}"
        self._say("", progress_html(pace, progress.done, progress.total))

    def _say(self, said: str, progress: str = "") -> None:
        self._said, self._progress = said, progress
        if self.live:
            self._pulse.beat()

    def _begin(self) -> None:
        if not self._loading.locked():
            threading.Thread(target=self._load_quietly, name="dl-load", daemon=True).start()

    def _load_quietly(self) -> None:
        try:
            self.load()
        except DashInferLabError:
            return  # the view says so

    def _controls(self) -> list[Any]:
        from ipywidgets import Text

        model = Text(self.model, continuous_update=False)
        observed(model, lambda new: self.choose(model=new), self.say("loader.model"))
        names = list(dict.fromkeys([self.weights, *_WEIGHTS]))
        weights = dropdown(
            self.say("loader.weights"), names, self.weights, lambda new: self.choose(weights=new)
        )
        self._button = button(self.say("loader.load"), self._begin, primary=True)
        return [row(model, weights, self._button), self.picture]

    def _draw(self) -> None:
        self._button.disabled = self._loading.locked()
        self.redraw()

    def _end(self) -> None:
        self._pulse.close()

    def _body(self) -> str:
        if self._progress and not self._said:
            return self._progress
        try:
            return fit_html(self.fit(), self.model, self.say) + self._said
        except DashInferLabError as error:
            return note(str(error), "bad") + self._said
