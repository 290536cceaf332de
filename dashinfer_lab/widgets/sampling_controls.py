"""Sliders for what a request asks of sampling; knows no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.widgets.controls import observed

if TYPE_CHECKING:
    from dashinfer_lab.llm import LLM
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["chat_params", "sampling_controls"]


_LONGEST_ANSWER: Final = 256


def chat_params(llm: LLM) -> SamplingParams:
    """The model's own defaults, with answers of a length that a person waits for."""
    return replace(llm.default_sampling_params, max_tokens=_LONGEST_ANSWER)


def sampling_controls(
    params: SamplingParams, say: Callable[..., str], changed: Callable[[str, Any], None]
) -> Any:
    """A box of controls that begin at `params`; `changed` is told each option's name and value."""
    from ipywidgets import BoundedIntText, FloatSlider, IntSlider, IntText, VBox

    longest = params.max_tokens or 256
    seed = -1 if params.seed is None else params.seed
    controls = {
        "temperature": FloatSlider(params.temperature, min=0, max=2, step=0.05),
        "top_p": FloatSlider(params.top_p, min=0.05, max=1, step=0.05),
        "top_k": BoundedIntText(max(params.top_k, 0), min=0, max=1000),
        "max_tokens": IntSlider(longest, min=1, max=max(2048, longest)),
        "seed": IntText(seed),
    }
    for name, control in controls.items():
        observed(control, partial(changed, name), say(f"chat.{name}"))
        control.style.description_width = "130px"
    return VBox(list(controls.values()))
