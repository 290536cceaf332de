"""The conversation on the page: message, streamed answer, stop, again, edit, clear.

The server keeps the conversation; the chat component only shows it. Annotations are evaluated
here, because Gradio finds by them where a request and an event's data belong.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from html import escape
from typing import Any, Final, NamedTuple

from dashinfer_lab.demo.chat import Chat, Settings, View
from dashinfer_lab.demo.context import DemoContext, Sampling, session_name
from dashinfer_lab.demo.conversation import Conversation, Turn
from dashinfer_lab.demo.literal import literal, plain
from dashinfer_lab.demo.settings import Controls
from dashinfer_lab.demo.texts import Texts

__all__ = ["chat_tab"]

_EXAMPLES: Final = ("chat.example.1", "chat.example.2", "chat.example.3")


class _Parts(NamedTuple):
    """Components of the tab."""

    chat: Any
    box: Any
    send: Any
    stop: Any
    clear: Any


def chat_tab(context: DemoContext, controls: Controls) -> None:
    """Build the tab and its events."""
    import gradio as gr

    parts = _parts(context)
    conversation = gr.State(Conversation())
    chat = Chat(context)
    settings = _settings(context)
    inputs = [conversation, *controls]
    # Requests wait in the engine, which batches them, not here.
    answered: dict[str, Any] = {
        "outputs": list(parts[:4]),
        "concurrency_limit": None,
        "show_progress": "hidden",
    }
    at_once: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
    send = _send(chat, settings)
    gr.on([parts.box.submit, parts.send.click], send, [parts.box, *inputs], **answered)
    parts.chat.example_select(_example(chat, settings), inputs, **answered)
    parts.chat.retry(_again(chat, settings), inputs, **answered)
    parts.chat.edit(_edit(chat, settings), inputs, **answered)
    parts.stop.click(_stop(chat), **at_once)
    clears = [parts.clear.click, parts.chat.clear]
    gr.on(clears, _clear(chat), conversation, list(parts[:4]), **at_once)


def _parts(context: DemoContext) -> _Parts:
    import gradio as gr

    say = context.say
    chat = gr.Chatbot(
        label=say("chat.conversation"),
        show_label=False,
        container=False,
        elem_id="chat",
        placeholder=escape(say("chat.empty")),
        examples=[{"text": context.understood(key)} for key in _EXAMPLES],
        editable="user",
        buttons=["copy"],
        feedback_options=None,
        height="calc(100dvh - 226px)",
        min_height=300,
        latex_delimiters=[],
    )
    with gr.Row(elem_id="entry"):
        box = gr.Textbox(
            label=say("chat.box"),
            placeholder=say("chat.placeholder"),
            show_label=False,
            container=False,
            autofocus=True,
            max_lines=8,
            scale=8,
            min_width=160,
            elem_id="message",
        )
        send = gr.Button(say("chat.send"), variant="primary", min_width=80, elem_id="send")
        stop = gr.Button(
            say("chat.stop"), variant="stop", min_width=80, elem_id="stop", visible=False
        )
        clear = gr.Button(say("chat.clear"), min_width=80, elem_id="clear")
    return _Parts(chat, box, send, stop, clear)


def _settings(context: DemoContext) -> Callable[..., Settings]:
    def settings(
        model: Any, weights: Any, kv_cache_dtype: Any, system: str, *drawn: Any
    ) -> Settings:
        choice = context.choice(model, weights, kv_cache_dtype)
        return Settings(choice, system or "", Sampling(*drawn))

    return settings


def _send(chat: Chat, settings: Callable[..., Settings]) -> Callable[..., Any]:
    import gradio as gr

    async def send(
        request: gr.Request, message: str, conversation: Conversation, *controls: Any
    ) -> AsyncGenerator[tuple[Any, ...]]:
        session = session_name(request.session_hash)
        views = chat.send(session, conversation, message or "", settings(*controls))
        async for shown in _shown(views, chat.say):
            yield shown

    return send


def _example(chat: Chat, settings: Callable[..., Settings]) -> Callable[..., Any]:
    import gradio as gr

    async def example(
        picked: gr.SelectData, request: gr.Request, conversation: Conversation, *controls: Any
    ) -> AsyncGenerator[tuple[Any, ...]]:
        session, message = session_name(request.session_hash), str(picked.value["text"])
        views = chat.send(session, conversation, message, settings(*controls))
        async for shown in _shown(views, chat.say):
            yield shown

    return example


def _again(chat: Chat, settings: Callable[..., Settings]) -> Callable[..., Any]:
    import gradio as gr

    async def again(
        retry: gr.RetryData, request: gr.Request, conversation: Conversation, *controls: Any
    ) -> AsyncGenerator[tuple[Any, ...]]:
        session, index = session_name(request.session_hash), _position(retry.index)
        views = chat.rewrite(session, conversation, index, None, settings(*controls))
        async for shown in _shown(views, chat.say):
            yield shown

    return again


def _edit(chat: Chat, settings: Callable[..., Settings]) -> Callable[..., Any]:
    import gradio as gr

    async def edit(
        edited: gr.EditData, request: gr.Request, conversation: Conversation, *controls: Any
    ) -> AsyncGenerator[tuple[Any, ...]]:
        session, index = session_name(request.session_hash), _position(edited.index)
        message = plain(str(edited.value))
        views = chat.rewrite(session, conversation, index, message, settings(*controls))
        async for shown in _shown(views, chat.say):
            yield shown

    return edit


def _stop(chat: Chat) -> Callable[..., None]:
    import gradio as gr

    def stop(request: gr.Request) -> None:
        chat.stop(session_name(request.session_hash))

    return stop


def _clear(chat: Chat) -> Callable[..., tuple[Any, ...]]:
    import gradio as gr

    def clear(request: gr.Request, conversation: Conversation) -> tuple[Any, ...]:
        view = chat.clear(session_name(request.session_hash), conversation)
        return _updates(view, chat.say)

    return clear


def _position(index: int | tuple[int, int]) -> int:
    """Return the message that an event is about; an index may name a part of it."""
    return index if isinstance(index, int) else index[0]


async def _shown(views: AsyncGenerator[View], say: Texts) -> AsyncGenerator[tuple[Any, ...]]:
    """Show each view; whatever ends this ends the answer too."""
    async with aclosing(views):
        async for view in views:
            yield _updates(view, say)


def _updates(view: View, say: Texts) -> tuple[Any, ...]:
    """What chat, box, send and stop become."""
    import gradio as gr

    box = gr.skip() if view.box is None else gr.update(value=view.box)
    send, stop = gr.update(visible=not view.is_busy), gr.update(visible=view.is_busy)
    messages = _messages(view.turns, say)
    if view.is_busy and messages[-1]["role"] == "user":
        waiting = f"<span class='waiting'>{escape(say('answer.waiting'))}</span>"
        messages.append({"role": "assistant", "content": [_html(waiting)]})
    return messages, box, send, stop


def _messages(turns: Sequence[Turn], say: Texts) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages.append({"role": "user", "content": [_text(turn.message)]})
        content = [_text(turn.answer)] if turn.answer else []
        if turn.note:
            content.append(_html(_note(turn, say)))
        if content:
            messages.append({"role": "assistant", "content": content})
    return messages


def _note(turn: Turn, say: Texts) -> str:
    """Return the line under an answer, our own markup around escaped text."""
    if turn.failed:
        return f"<span class='note failed'>{escape(turn.note)}</span>"
    copy, label = escape(turn.answer), escape(say("chat.copy"))
    button = f"<button class='copy' data-copy='{copy}'>{label}</button>" if turn.answer else ""
    return f"<span class='note'>{escape(turn.note)}</span>{button}"


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": literal(text)}


def _html(value: str) -> dict[str, Any]:
    return {
        "type": "component",
        "component": "html",
        "value": value,
        "constructor_args": {},
        "props": {},
    }
