"""What every part of the page shares: models, who is being answered, the language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dashinfer_lab.demo.choices import is_english_only
from dashinfer_lab.demo.running import Running
from dashinfer_lab.demo.shelf import Choice, ModelShelf
from dashinfer_lab.demo.texts import Texts
from dashinfer_lab.errors import DashInferLabError, RequestError
from jit_kernels.errors import JitKernelsError

if TYPE_CHECKING:
    from dashinfer_lab.sampling import SamplingParams

__all__ = [
    "EXPECTED",
    "SCHEMES",
    "SHOWN",
    "DemoContext",
    "Sampling",
    "session_name",
    "with_stated",
]

EXPECTED: Final = (DashInferLabError, JitKernelsError, OSError, MemoryError)
"""Errors that are told to the person; any other is a fault of the page."""

SHOWN: Final = {"temperature": 0.7, "top_p": 0.95, "top_k": 0}
"""Sampling options with a control, and where it stands unless the model states another value."""

SCHEMES: Final = (
    *("auto", "fp32", "bf16", "a16w8", "a16w8:32", "a16w8:128", "a16w8:row", "a16w4"),
    *("a8w8", "a8w4"),
)
"""Schemes the pickers offer."""


@dataclass(frozen=True)
class DemoContext:
    """models: names the picker offers, the first is what the page begins with.

    any_model: whether other models may be typed, which lets who does so read this machine's
    directories and fill its disk.
    """

    shelf: ModelShelf
    say: Texts
    models: tuple[str, ...]
    weights: str
    any_model: bool
    kv_cache_dtype: str = "auto"
    running: Running = field(default_factory=Running)

    def choice(self, model: object, weights: object, kv_cache_dtype: object = None) -> Choice:
        """Return what was picked; nothing at all is what the page began with."""
        return Choice(
            str(model or self.models[0]).strip(),
            str(weights or "auto").strip(),
            str(kv_cache_dtype or self.kv_cache_dtype).strip(),
        )

    @property
    def understood(self) -> Texts:
        """What is put to the first model: in the page's language where it speaks that."""
        return Texts("en") if is_english_only(self.models[0]) else self.say


def with_stated(params: SamplingParams, stated: Mapping[str, Any]) -> SamplingParams:
    """Add what a model states of sampling that no control of the page shows."""
    return replace(params, **{name: it for name, it in stated.items() if name not in SHOWN})


def session_name(session: str | None) -> str:
    """Return the name of a tab; callers of the page's interface without one share a name."""
    return session or "-"


class Sampling(NamedTuple):
    """Where the controls of sampling stand; an empty seed draws a fresh one."""

    temperature: float
    top_p: float
    top_k: float
    max_tokens: float
    seed: str

    def params(self) -> SamplingParams:
        """Return what they ask for. Raises `RequestError`."""
        from dashinfer_lab.sampling import SamplingParams

        wanted = (self.seed or "").strip()
        if wanted and not wanted.isdecimal():
            raise RequestError(
                f"seed={wanted!r:.80} is not possible: give a whole number, or nothing"
            )
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=int(self.top_k),
            max_tokens=int(self.max_tokens),
            seed=int(wanted) if wanted else None,
        )
