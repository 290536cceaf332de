"""Where the time of an answer goes, operator by operator.

Annotations are evaluated here, because Gradio finds by them where a request belongs.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from html import escape
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from dashinfer_lab.demo.answer import answering
from dashinfer_lab.demo.context import EXPECTED, DemoContext, session_name
from dashinfer_lab.demo.settings import Controls

if TYPE_CHECKING:
    from dashinfer_lab.demo.shelf import Choice

__all__ = ["profile_tab"]


def profile_tab(context: DemoContext, controls: Controls) -> None:
    """Build the tab; what is profiled is what `controls` name."""
    import gradio as gr

    say = context.say
    gr.HTML(f"<p class='intro'>{say('profile.intro')}</p>")
    prompt = gr.Textbox(
        say("profile.default"), label=say("profile.prompt"), max_lines=6, elem_id="profile-prompt"
    )
    tokens = gr.Slider(1, 256, 32, step=1, label=say("profile.tokens"), elem_id="profile-tokens")
    with gr.Row(elem_classes=["run"]):
        run = gr.Button(say("profile.run"), variant="primary", elem_id="profile-run")
        stop = gr.Button(say("chat.stop"), variant="stop", visible=False, elem_id="profile-stop")
    report = gr.HTML(elem_id="profile-report")
    run.click(
        _profile(context),
        [prompt, tokens, controls.model, controls.weights, controls.kv_cache_dtype],
        [report, run, stop],
        # A recorder belongs to one run at a time, and a second one would change what is measured.
        concurrency_limit=1,
        concurrency_id="measured",
        show_progress="hidden",
        api_name="profile",
    )
    stop.click(_stop(context), queue=False, show_progress="hidden")


def _profile(context: DemoContext) -> Callable[..., Any]:
    import gradio as gr

    async def profile(
        request: gr.Request, prompt: str, tokens: float, *picked: Any
    ) -> AsyncGenerator[list[Any]]:
        session, choice = session_name(request.session_hash), context.choice(*picked)
        yield ["", gr.update(visible=False), gr.update(visible=True)]
        try:
            report = await _report(context, session, choice, prompt or "", int(tokens))
        except EXPECTED as error:
            note = escape(context.say("answer.error", message=context.say.error(error)))
            report = f"<span class='note failed'>{note}</span>"
        yield [report, gr.update(visible=True), gr.update(visible=False)]

    return profile


async def _report(
    context: DemoContext, session: str, choice: "Choice", prompt: str, tokens: int
) -> str:
    """Answer `prompt` under a recorder and return the profile as HTML."""
    from dashinfer_lab.engine import RequestOptions
    from dashinfer_lab.profiling import OpProfile
    from dashinfer_lab.profiling.html import fragment
    from dashinfer_lab.sampling import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    # Nobody has computed the prompt under this salt: there is a prefill to look at.
    alone = RequestOptions(cache_salt=token_hex(16))
    with context.running.work(session) as stop:
        async with context.shelf.lent(choice) as llm:
            with llm.profiling() as recorder:
                async with aclosing(answering(llm, prompt, params, stop, alone)) as answers:
                    async for answer in answers:
                        if answer.error is not None:
                            note = escape(answer.note(context.say))
                            return f"<span class='note failed'>{note}</span>"
            roof = await asyncio.to_thread(llm.measure_roof)
            table = fragment(OpProfile.of(recorder, roof), context.say.language)
            return f"<div class='profile'>{table}</div>"


def _stop(context: DemoContext) -> Callable[..., None]:
    import gradio as gr

    def stop(request: gr.Request) -> None:
        context.running.stop(session_name(request.session_hash))

    return stop
