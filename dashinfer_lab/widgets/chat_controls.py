"""The box and the buttons of a chat; knows no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.widgets.controls import button, row
from dashinfer_lab.widgets.sampling_controls import sampling_controls

if TYPE_CHECKING:
    from dashinfer_lab.sampling import SamplingParams

__all__ = ["ChatControls"]


class ChatControls:
    """`acts` by name: "send" is given the text of the box, the others nothing."""

    def __init__(
        self,
        say: Callable[..., str],
        acts: Mapping[str, Callable[..., object]],
        params: SamplingParams,
        sampled: Callable[[str, Any], None],
    ) -> None:
        from ipywidgets import Accordion, Layout, Textarea

        wide = Layout(width="auto", height="64px")
        self._send: Final = acts["send"]
        self.box: Final[Any] = Textarea(placeholder=say("chat.placeholder"), layout=wide)
        self.buttons: Final = {
            name: button(say(f"chat.{name}"), self._send_box if name == "send" else act)
            for name, act in acts.items()
        }
        self.buttons["send"].button_style = "primary"
        sliders = sampling_controls(params, say, sampled)
        sampling = Accordion([sliders], titles=[say("chat.sampling")], selected_index=None)
        self.widgets: Final[list[Any]] = [self.box, row(*self.buttons.values()), sampling]

    def enable(self, *, busy: bool, begun: bool) -> None:
        """Offer what makes sense now."""
        self.buttons["send"].disabled = busy
        self.buttons["stop"].disabled = not busy
        self.buttons["again"].disabled = not begun

    def _send_box(self) -> None:
        message, self.box.value = self.box.value, ""
        self._send(message)
