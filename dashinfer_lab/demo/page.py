"""The page put together: tabs, the column beside them, theme and style.

Annotations are evaluated here, because Gradio finds by them where a request belongs.
"""

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from dashinfer_lab.demo.chat_tab import chat_tab
from dashinfer_lab.demo.compare_tab import compare_tab
from dashinfer_lab.demo.context import DemoContext, session_name
from dashinfer_lab.demo.literal import SCRIPT
from dashinfer_lab.demo.profile_tab import profile_tab
from dashinfer_lab.demo.settings import settings_column

__all__ = ["HEAD", "STYLE", "build_page", "theme"]

STYLE: Final = Path(__file__).with_name("style.css")
"""Style sheet of the page."""

# Without an icon of its own a browser asks the host for one, which behind a proxy is another's.
_ICON: Final = quote(
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'>"
    "<rect width='32' height='32' rx='7' fill='#4f46e5'/>"
    "<path d='M8 22V10m5 12V14m5 8V10m5 12V17' stroke='#fff' stroke-width='3' "
    "stroke-linecap='round'/></svg>"
)

HEAD: Final = f"<link rel='icon' href='data:image/svg+xml,{_ICON}'>{SCRIPT}"
"""What the page's head holds beside Gradio's own."""

# Fonts of the system, in both languages; none is fetched.
_SANS: Final = (
    *("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "PingFang SC"),
    *("Microsoft YaHei", "Noto Sans CJK SC", "Noto Color Emoji", "sans-serif"),
)
_MONO: Final = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

_MAX_WAITING: Final = 512


def theme() -> Any:
    """Return the page's colours and fonts."""
    from gradio import themes

    return themes.Base(
        primary_hue="indigo",
        neutral_hue="slate",
        radius_size="md",
        font=list(_SANS),
        font_mono=list(_MONO),
    ).set(
        # Gradio's own greys of what explains a control are too pale to read on white.
        body_text_color_subdued="*neutral_500",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        block_info_text_color="*neutral_500",
    )


def build_page(context: DemoContext) -> Any:
    """Return the page as Gradio blocks, with its queue; nothing is served yet."""
    import gradio as gr

    say = context.say
    with gr.Blocks(analytics_enabled=False, title=say("page.title"), fill_width=True) as page:
        gr.HTML(
            f"<header class='banner'><h1>{say('page.title')}</h1>"
            f"<p>{say('page.subtitle')}</p></header>"
        )
        with gr.Row(elem_id="page"):
            main = gr.Column(scale=3, min_width=320, elem_id="main")
            with gr.Column(scale=1, min_width=280, elem_id="side"):
                controls = settings_column(context)
            with main, gr.Tabs():
                with gr.Tab(say("tab.chat"), elem_id="tab-chat"):
                    chat_tab(context, controls)
                with gr.Tab(say("tab.compare"), elem_id="tab-compare"):
                    compare_tab(context, controls)
                with gr.Tab(say("tab.profile"), elem_id="tab-profile"):
                    profile_tab(context, controls)
        page.unload(_unload(context))
    page.queue(default_concurrency_limit=None, max_size=_MAX_WAITING)
    return page


def _unload(context: DemoContext) -> Any:
    import gradio as gr

    def unload(request: gr.Request) -> None:
        context.running.stop(session_name(request.session_hash))

    return unload
