"""Two weight formats of one model, side by side on one prompt; greedy, one after the other.

Annotations are evaluated here, because Gradio finds by them where a request belongs.
"""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from html import escape
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dashinfer_lab.demo.answer import Answer, answering
from dashinfer_lab.demo.context import EXPECTED, SCHEMES, DemoContext, session_name
from dashinfer_lab.demo.facts import weights_mb
from dashinfer_lab.demo.running import Stop
from dashinfer_lab.demo.settings import Controls
from dashinfer_lab.demo.texts import Texts

if TYPE_CHECKING:
    from dashinfer_lab.demo.shelf import Choice

__all__ = ["Side", "common_tokens", "compare_tab", "verdict"]

_MAX_TOKENS: Final = 160


class Side(NamedTuple):
    """An answer as far as it came, and the model's weights: scheme and size in 1e6 bytes."""

    answer: Answer
    weights: str
    weights_mb: float = 0.0


def common_tokens(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
    )


def compare_tab(context: DemoContext, controls: Controls) -> None:
    """Build the tab; the model, and the format of keys and values, are what `controls` name."""
    import gradio as gr

    say = context.say
    schemes = [scheme for scheme in SCHEMES if scheme != "auto"]
    gr.HTML(f"<p class='intro'>{say('compare.intro')}</p>")
    prompt = gr.Textbox(
        context.understood("compare.default"),
        label=say("compare.prompt"),
        max_lines=6,
        elem_id="compare-prompt",
    )
    with gr.Row(elem_classes=["run"]):
        run = gr.Button(say("compare.run"), variant="primary", elem_id="compare-run")
        stop = gr.Button(say("chat.stop"), variant="stop", visible=False, elem_id="compare-stop")
    verdict = gr.HTML(elem_id="verdict")
    with gr.Row():
        begin = zip(("left", "right"), _first_two(context, schemes), strict=True)
        sides = [_side(say, schemes, side, scheme) for side, scheme in begin]
    pickers = [side[0] for side in sides]
    shown = [component for side in sides for component in side[1:]]
    run.click(
        _compare(context),
        [prompt, controls.model, *pickers, controls.kv_cache_dtype],
        [*shown, verdict, run, stop],
        concurrency_limit=1,
        concurrency_id="measured",
        show_progress="hidden",
        api_name="compare",
    )
    stop.click(_stop(context), queue=False, show_progress="hidden")


def _first_two(context: DemoContext, schemes: list[str]) -> tuple[str, str]:
    """What the chat's model is stored as, which is loaded already, and what costs no bit."""
    llm = context.shelf.peek(context.choice(None, context.weights))
    stored = "" if llm is None else llm.artifact.metadata["scheme"]
    known = [it for it in (stored, stored.partition(":")[0], "a16w8") if it in schemes]
    return known[0], "fp32" if known[0] != "fp32" else "a16w8"


def _side(say: Texts, schemes: list[str], side: str, scheme: str) -> tuple[Any, Any, Any]:
    import gradio as gr

    with gr.Column(min_width=280):
        picker = gr.Dropdown(
            schemes,
            value=scheme,
            label=say(f"compare.{side}"),
            elem_id=f"compare-{side}",
        )
        text = gr.Textbox(
            label=say("compare.answer"),
            lines=10,
            max_lines=16,
            interactive=False,
            elem_id=f"answer-{side}",
        )
        note = gr.HTML(elem_id=f"note-{side}", min_height=24)
    return picker, text, note


def _compare(context: DemoContext) -> Callable[..., Any]:
    import gradio as gr

    async def compare(
        request: gr.Request, prompt: str, model: Any, left: Any, right: Any, kv_cache_dtype: Any
    ) -> AsyncGenerator[list[Any]]:
        shown: list[Any] = [""] * 5
        sides: list[Side] = []  # of each, the last seen
        yield [*shown, *_buttons(is_busy=True)]
        with context.running.work(session_name(request.session_hash)) as stop:
            for side, weights in enumerate((left, right)):
                choice = context.choice(model, weights, kv_cache_dtype)
                async with aclosing(_answers(context, choice, prompt or "", stop)) as coming:
                    async for seen, note in coming:
                        shown[2 * side : 2 * side + 2] = [seen.answer.text, note]
                        sides[side:] = [seen]
                        yield [*shown, *_buttons(is_busy=True)]
            if len(sides) == 2 and not stop.asked:
                shown[4] = verdict(sides[0], sides[1], context.say)
        yield [*shown, *_buttons(is_busy=False)]

    return compare


def _buttons(*, is_busy: bool) -> list[Any]:
    import gradio as gr

    return [gr.update(visible=not is_busy), gr.update(visible=is_busy)]


async def _answers(
    context: DemoContext, choice: "Choice", prompt: str, stop: Stop
) -> AsyncGenerator[tuple[Side, str]]:
    """Yield the answer of one side as it grows, and the line under it."""
    from dashinfer_lab.sampling import SamplingParams

    if stop.asked:
        return
    params = SamplingParams(temperature=0, max_tokens=_MAX_TOKENS)
    messages = [{"role": "user", "content": prompt}]
    try:
        async with context.shelf.lent(choice) as llm:
            mb = weights_mb(llm)
            size = context.say("compare.size", mb=mb)
            async with aclosing(answering(llm, messages, params, stop)) as answers:
                async for answer in answers:
                    end = answer.finish_reason is not None
                    side = Side(answer, choice.weights, mb)
                    yield side, _note(f"{size} · {answer.note(context.say)}" if end else size)
    except EXPECTED as error:
        failed = Answer("", [], "error", error)
        yield (
            Side(failed, choice.weights),
            f"<span class='note failed'>{escape(failed.note(context.say))}</span>",
        )


def verdict(left: Side, right: Side, say: Texts) -> str:
    """How far the answers agree, and what the smaller weights save; nothing after an error."""
    one, other = left.answer, right.answer
    if one.error is not None or other.error is not None:
        return ""
    count = common_tokens(one.token_ids, other.token_ids)
    key = "same" if one.token_ids == other.token_ids else "differ" if count else "apart"
    parts = [say(f"compare.{key}", count=count), *_saved(left, right, say)]
    return f"<p class='verdict {key}'>{escape(' '.join(parts))}</p>"


def _saved(left: Side, right: Side, say: Texts) -> Iterator[str]:
    small, large = sorted((left, right), key=lambda side: side.weights_mb)
    speeds = (small.answer.tokens_per_second, large.answer.tokens_per_second)
    if small.weights_mb < large.weights_mb and speeds[0] and speeds[1]:
        yield say(
            "compare.cost",
            small=small.weights,
            large=large.weights,
            share=small.weights_mb / large.weights_mb,
            speed=speeds[0] / speeds[1],
        )


def _note(text: str) -> str:
    return f"<span class='note'>{escape(text)}</span>"


def _stop(context: DemoContext) -> Callable[..., None]:
    import gradio as gr

    def stop(request: gr.Request) -> None:
        context.running.stop(session_name(request.session_hash))

    return stop
