"""Views of models, weights, profiles, kernels, engines and chats in a notebook cell.

Each is displayed by being a cell's last expression, or by `display`. With ipywidgets and a live
front end it has controls; elsewhere (no ipywidgets, a notebook read as a file) the same facts stand
there as HTML, and as text in a console. `lang="zh" | "en"`; None takes the locale's language.

    ModelLoader(model="smollm2-135m", weights="auto")   .fit(), .load() -> LLM, .llm, .close()
    QuantisationExplorer(model or LLM)      .choose(layer=, kind=, group_size=), .errors()
    ProfileDashboard(LLM or OpProfile, before=None)     .run(), .show("roofline"), .profile
    KernelViewer(LLM or OpProfile, or nothing)          .choose(kernel=, view=, isa=), .text
    EngineView(LLM or Engine)               .start(), .stop()
    ChatPanel(LLM, system="", params=None)  .ask(text) -> str, .send(text), .stop(), .regenerate()

What the controls do, these methods do, too: a view can be driven without a front end. `close()`
ends whatever a view has going on. A view is told of an engine's steps only while it is shown, and
draws at most 20 times a second. Importing this package imports no ipywidgets.
"""

from __future__ import annotations

from dashinfer_lab.widgets.chat_panel import ChatPanel
from dashinfer_lab.widgets.engine_view import EngineView
from dashinfer_lab.widgets.kernel_viewer import KernelViewer
from dashinfer_lab.widgets.model_loader import ModelLoader
from dashinfer_lab.widgets.profile_dashboard import ProfileDashboard
from dashinfer_lab.widgets.quantisation_explorer import QuantisationExplorer

__all__ = [
    "ChatPanel",
    "EngineView",
    "KernelViewer",
    "ModelLoader",
    "ProfileDashboard",
    "QuantisationExplorer",
]
