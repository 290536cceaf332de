"""The column beside the tabs: model and weights, this machine, system prompt, sampling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from html import escape
from typing import Any, Final, NamedTuple

from dashinfer_lab.demo.choices import LARGER_MODEL, is_english_only
from dashinfer_lab.demo.context import EXPECTED, SCHEMES, SHOWN, DemoContext
from dashinfer_lab.demo.facts import facts_html
from dashinfer_lab.demo.shelf import Choice
from dashinfer_lab.engine.auto_kv import KV_CACHE_DTYPES

__all__ = ["Controls", "settings_column"]

_SECONDS_BETWEEN_GLANCES: Final = 2.0


class Controls(NamedTuple):
    """Components that say how to answer, in the order events take them."""

    model: Any
    weights: Any
    kv_cache_dtype: Any
    system: Any
    temperature: Any
    top_p: Any
    top_k: Any
    max_tokens: Any
    seed: Any


def settings_column(context: DemoContext) -> Controls:
    """Build the column; picking a model loads it."""
    import gradio as gr

    say, english_only = context.say, is_english_only(context.models[0])
    with gr.Group():
        pickers = _pickers(context)
        told = gr.HTML(say("model.english_only"), visible=english_only, elem_classes=["hint"])
        refused = gr.HTML(visible=False, elem_classes=["hint"], elem_id="refused")
    larger = gr.Button(
        say("model.larger", name=LARGER_MODEL),
        visible=english_only and context.any_model,
        size="sm",
        elem_id="larger-model",
    )
    panel = gr.HTML(_glance(context)(None, context.weights, None), elem_id="facts")
    with gr.Accordion(say("chat.system"), open=False, elem_id="system-prompt"):
        system = gr.Textbox(
            label=say("chat.system"),
            show_label=False,
            container=False,
            placeholder=say("chat.system_hint"),
            lines=3,
            max_lines=8,
            elem_id="system",
        )
    with gr.Accordion(say("sampling.title"), open=False, elem_id="sampling"):
        sampling = _sampling(context)
    _events(context, pickers, [told, larger, refused, panel, *sampling[: len(SHOWN)]])
    return Controls(*pickers, system, *sampling)


def _pickers(context: DemoContext) -> tuple[Any, Any, Any]:
    import gradio as gr

    say = context.say
    model = gr.Dropdown(
        list(context.models),
        value=context.models[0],
        label=say("model.name"),
        info=say("model.name_hint") if context.any_model else None,
        allow_custom_value=context.any_model,
        elem_id="model",
    )
    schemes = list(SCHEMES) if context.weights in SCHEMES else [context.weights, *SCHEMES]
    weights = gr.Dropdown(
        schemes, value=context.weights, label=say("model.weights"), elem_id="weights"
    )
    kv_cache_dtype = gr.Dropdown(
        list(KV_CACHE_DTYPES),
        value=context.kv_cache_dtype,
        label=say("model.kv_cache_dtype"),
        elem_id="kv-cache-dtype",
    )
    return model, weights, kv_cache_dtype


def _sampling(context: DemoContext) -> tuple[Any, ...]:
    import gradio as gr

    say = context.say
    temperature, top_p, top_k = _stated(context, context.choice(None, context.weights))
    return (
        gr.Slider(
            0,
            2,
            temperature,
            step=0.05,
            label=say("sampling.temperature"),
            info=say("sampling.temperature_hint"),
            elem_id="temperature",
        ),
        gr.Slider(0.05, 1, top_p, step=0.05, label=say("sampling.top_p"), elem_id="top-p"),
        gr.Slider(0, 200, top_k, step=1, label=say("sampling.top_k"), elem_id="top-k"),
        gr.Slider(16, 4096, 512, step=16, label=say("sampling.max_tokens"), elem_id="max-tokens"),
        gr.Textbox(label=say("sampling.seed"), max_lines=1, elem_id="seed"),
    )


def _events(context: DemoContext, pickers: tuple[Any, Any, Any], shown: list[Any]) -> None:
    import gradio as gr

    load, glance = _load(context), _glance(context)
    quiet: dict[str, Any] = {"show_progress": "hidden", "queue": False}
    for picker in pickers:
        picker.change(load, list(pickers), shown, concurrency_limit=None, show_progress_on=shown[3])
    shown[1].click(lambda: LARGER_MODEL, None, pickers[0], **quiet)
    timer = gr.Timer(_SECONDS_BETWEEN_GLANCES)
    timer.tick(glance, list(pickers), shown[3], **quiet)


def _glance(context: DemoContext) -> Callable[[Any, Any, Any], str]:
    def glance(model: Any, weights: Any, kv_cache_dtype: Any) -> str:
        choice = context.choice(model, weights, kv_cache_dtype)
        return facts_html(context.shelf.peek(choice), context.say)

    return glance


def _load(context: DemoContext) -> Callable[[Any, Any, Any], Awaitable[list[Any]]]:
    import gradio as gr

    async def load(model: Any, weights: Any, kv_cache_dtype: Any) -> list[Any]:
        choice = context.choice(model, weights, kv_cache_dtype)
        try:
            await asyncio.to_thread(context.shelf.fetch, choice)
        except EXPECTED as error:
            return _refusal(context, choice, error)
        english_only = is_english_only(choice.model)
        return [
            gr.update(visible=english_only),
            gr.update(visible=english_only and context.any_model),
            gr.update(visible=False),
            facts_html(context.shelf.peek(choice), context.say),
            *_stated(context, choice),
        ]

    return load


def _refusal(context: DemoContext, choice: Choice, error: BaseException) -> list[Any]:
    """Say under the pickers why the model is not loaded, until another is picked."""
    import gradio as gr

    why = context.say("model.refused", message=context.say.error(error))
    return [
        gr.update(visible=False),
        gr.update(visible=False),
        gr.update(value=f"<span class='note failed'>{escape(why)}</span>", visible=True),
        facts_html(context.shelf.peek(choice), context.say),
        *[gr.skip()] * len(SHOWN),
    ]


def _stated(context: DemoContext, choice: Choice) -> list[Any]:
    """Where the controls stand: as the model states, else where they usually do."""
    llm = context.shelf.peek(choice)
    stated = llm.sampling_defaults if llm is not None else {}
    return [stated.get(name, usual) for name, usual in SHOWN.items()]
