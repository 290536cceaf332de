"""The controls all views are made of, so that they look and call back alike; knows no view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["button", "dropdown", "observed", "row", "slider", "toggles"]


def button(label: str, act: Callable[[], object], *, primary: bool = False) -> Any:
    """A button that calls `act`."""
    from ipywidgets import Button

    def clicked(_: Any) -> None:
        act()

    made: Any = Button(description=label, button_style="primary" if primary else "")
    made.on_click(clicked)
    return made


def observed(control: Any, changed: Callable[[Any], object], label: str | None = None) -> Any:
    """`control` with a label, calling `changed` with each new value."""

    def told(change: Any) -> None:
        changed(change["new"])

    if label is not None:
        control.description = label
        control.style.description_width = "initial"
    control.observe(told, "value")
    return control


def dropdown(
    label: str, options: Sequence[Any], value: Any, changed: Callable[[Any], object]
) -> Any:
    """One of several, in a list that opens."""
    from ipywidgets import Dropdown

    return observed(Dropdown(options=options, value=value), changed, label)


def toggles(options: Sequence[Any], value: Any, changed: Callable[[Any], object], px: int) -> Any:
    """One of several, side by side, each `px` wide."""
    from ipywidgets import ToggleButtons

    made = ToggleButtons(options=options, value=value)
    made.style.button_width = f"{px}px"
    return observed(made, changed)


def slider(label: str, options: Sequence[Any], value: Any, changed: Callable[[Any], object]) -> Any:
    """One of several in order."""
    from ipywidgets import SelectionSlider

    return observed(SelectionSlider(options=options, value=value), changed, label)


def row(*controls: Any) -> Any:
    """Controls beside each other, below where it is narrow."""
    from ipywidgets import HBox, Layout

    return HBox(list(controls), layout=Layout(flex_flow="row wrap", grid_gap="4px 14px"))
