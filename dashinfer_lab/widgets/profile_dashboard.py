"""A profile to turn over: table, bars, roofline, timeline, requests, memory, before and after."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.profiling import OpProfile
from dashinfer_lab.widgets.aside import begin_aside
from dashinfer_lab.widgets.controls import button, row, toggles
from dashinfer_lab.widgets.profile_html import KINDS, available_kinds, profile_html
from dashinfer_lab.widgets.theme import note
from dashinfer_lab.widgets.view import View, require

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM

__all__ = ["ProfileDashboard"]

_DEFAULT_PROMPT: Final = "The quick brown fox jumps over the lazy dog. " * 6


class ProfileDashboard(View):
    """Show `source`, a profile, or profile `source`, an `LLM`, when asked to.

    before: an earlier profile to compare with.  roof: measure the machine after each run.
    """

    def __init__(
        self,
        source: LLM | OpProfile,
        *,
        before: OpProfile | None = None,
        roof: bool = True,
        lang: Language | None = None,
    ) -> None:
        super().__init__("profile.title", lang)
        self._llm: LLM | None = None if isinstance(source, OpProfile) else source
        if self._llm is not None and not hasattr(source, "profile"):
            raise ConfigError(f"{source!r:.80} cannot be profiled: give an LLM or an OpProfile")
        self.profile: OpProfile | None = source if isinstance(source, OpProfile) else None
        self.before = before
        self.kind = "table"
        self._roof: Final = roof
        self._running: Final = threading.Lock()
        self._said = ""

    @property
    def kinds(self) -> list[str]:
        """What there is to see of the profile."""
        return available_kinds(self.profile, self.before)

    def show(self, kind: str) -> ProfileDashboard:
        """Turn to a table or picture, as the buttons do. Raises `ConfigError` naming them."""
        require("kind", kind, KINDS)
        if kind != self.kind:
            self.kind = kind
            self.redraw()
        return self

    def run(self, prompt: str = _DEFAULT_PROMPT, tokens: int = 32) -> OpProfile:
        """Profile once; the run before becomes what it is compared with. Raises LLM's errors."""
        from dashinfer_lab.sampling import SamplingParams

        if self._llm is None:
            raise ConfigError("this dashboard shows a profile: give an LLM to profile again")
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        with self._running:
            self._say(note(self.say("profile.running")))
            try:
                found = self._llm.profile(prompt, params, roof=self._roof)
            except BaseException as error:
                self._say(self.failure("profile.failed", error))
                raise
            self.before, self.profile = self.profile or self.before, found
        self._say("")
        return found

    def __repr__(self) -> str:
        return self.say("profile.none") if self.profile is None else self.profile.report(self.lang)

    def _say(self, said: str) -> None:
        self._said = said
        self.redraw()

    def _controls(self) -> list[Any]:
        from ipywidgets import BoundedIntText, Text

        say = self.say
        kinds = [(say(f"profile.{kind}"), kind) for kind in KINDS]
        turn = self.bound["kind"] = toggles(kinds, self.kind, self.show, 92)
        if self._llm is None:
            return [turn, self.picture]
        self._prompt = Text(_DEFAULT_PROMPT, description=say("profile.prompt"))
        self._tokens = BoundedIntText(32, 1, 4096, description=say("profile.tokens"))
        run = button(say("profile.run"), self._begin, primary=True)
        return [row(self._prompt, self._tokens, run), turn, self.picture]

    def _begin(self) -> None:
        if not self._running.locked():
            begin_aside(lambda: self.run(self._prompt.value, self._tokens.value))

    def _live(self) -> str:
        return self._said or profile_html(self.profile, self.before, self.kind, self.lang)

    def _body(self) -> str:
        """Without controls, the table and the two pictures that say most, one below the other."""
        kinds = [kind for kind in ("table", "roofline", "comparison") if kind in self.kinds]
        found = [profile_html(self.profile, self.before, kind, self.lang) for kind in kinds]
        return "".join(found) or profile_html(self.profile, self.before, "table", self.lang)
