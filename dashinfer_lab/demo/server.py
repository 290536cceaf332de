"""Serves the page on this machine, and ends it again; knows sockets, not components."""

from __future__ import annotations

import errno
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.config import Language, default_language, notebook_proxy, silence_gradio
from dashinfer_lab.demo.choices import offered_models
from dashinfer_lab.demo.context import DemoContext
from dashinfer_lab.demo.freed import give_back
from dashinfer_lab.demo.quiet_end import quiet_end
from dashinfer_lab.demo.shelf import Choice, Load, ModelShelf
from dashinfer_lab.demo.texts import Texts
from dashinfer_lab.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

    from dashinfer_lab.llm import LLM
    from dashinfer_lab.progress import LoadProgress

__all__ = ["Demo", "DemoOptions", "serve"]

_FIRST_PORT: Final = 7860
_PORTS: Final = 100
_LOOPBACK: Final = "127.0.0.1"
_PRIVATE: Final = (_LOOPBACK, "localhost", "::1")
_ANYWHERE: Final = ("0.0.0.0", "::")
_LARGEST_UPLOAD: Final = "1kb"  # nothing on the page takes files
_SECONDS_TO_END: Final = 10.0

# Whatever the page should come to hold, the browser fetches nothing from elsewhere for it, and
# does not ask for the addresses of links.
_HEADERS: Final = {
    b"content-security-policy": b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    b"object-src 'none'; base-uri 'self'",
    b"referrer-policy": b"no-referrer",
    b"x-dns-prefetch-control": b"off",
}
_served: Final[list[Demo]] = []  # at most one


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How the page is served.

    host: who may reach it; only this machine by default.  port: None takes a free one from 7860
    on.  root_path: the path under which a proxy shows it; None takes that of the notebook around,
    if any.  threads: of the engine.  kv_cache_dtype: of keys and values, where the page begins.
    language: None takes the locale's.  chat_template: a model, and the file whose template it
    chats by in place of its own.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    root_path: str | None = None
    threads: int | None = None
    kv_cache_dtype: str = "auto"
    language: Language | None = None
    chat_template: tuple[str, Path] | None = None

    def __post_init__(self) -> None:
        if self.port is not None and not 0 < self.port < 65536:
            raise ConfigError(f"port={self.port} is no port: give one from 1 to 65535")
        if not self.host:
            raise ConfigError("host is empty: give an address of this machine, or 0.0.0.0 for all")
        if self.root_path is not None and not self.root_path.startswith(("/", "http")):
            raise ConfigError(
                f"root_path={self.root_path!r} is no path: give what the proxy puts before the "
                'page, as in "/user/me/proxy/7860"'
            )

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the page."""
        return self.host in _PRIVATE


class Demo:
    """A page that is served; a context manager.

    url: where.  proxy_url: where a proxy shows it, a whole URL or the path there; None without one.
    """

    def __init__(
        self, listener: socket.socket, app: Any, shelf: ModelShelf, root_path: str | None
    ) -> None:
        import uvicorn

        self._listener: Final = listener
        self._shelf: Final = shelf
        host, self.port = listener.getsockname()[:2]
        self.url: Final = f"http://{_LOOPBACK if host in _ANYWHERE else host}:{self.port}"
        self.proxy_url: Final = root_path
        # Streams stay open for as long as a tab does: they are not waited for.
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        self._server: uvicorn.Server | None = uvicorn.Server(config)
        self._thread: Final = threading.Thread(
            target=self._server.run, args=([listener],), name="dashinfer-lab-demo", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Block until the page ends; an interrupt comes through."""
        while self._thread.is_alive():
            time.sleep(0.2)  # before Python 3.13 an interrupted join takes the thread for ended

    def close(self) -> None:
        """End the page, what it is answering, and its models. Closing twice is harmless."""
        server, self._server = self._server, None
        if server is None:
            return
        with quiet_end():
            server.should_exit = True
            self._shelf.close()
            self._thread.join(_SECONDS_TO_END)
        self._listener.close()
        if self in _served:
            _served.remove(self)
        del server  # it holds the page
        give_back()

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Demo {self.url}{'' if self._thread.is_alive() else ', closed'}>"

    def _repr_html_(self) -> str:
        """A link for a notebook's cell: where a proxy shows the page, if there is one."""
        if not self._thread.is_alive():
            return escape(repr(self))
        url = escape(self.url if self.proxy_url is None else f"{self.proxy_url.rstrip('/')}/")
        return f"<a href='{url}' target='_blank' rel='noopener'>{url}</a>"


def serve(
    model: str = "smollm2-135m",
    weights: str = "auto",
    options: DemoOptions | None = None,
    *,
    load: Load | None = None,
    progress: LoadProgress | None = None,
) -> Demo:
    """Load `model` and serve the page; in a process that serves one already, instead of it.

    Then the page keeps its address, and the former's models are closed before the new one loads.
    load: makes models, by default `LLM`.  progress: told of the first model's fetch and conversion.
    Raises what `LLM` raises, and `ConfigError` for a port that is taken.
    """
    options = options or DemoOptions()
    if find_spec("gradio") is None:
        raise ConfigError("the demo needs Gradio: pip install 'gradio>=6,<7'")
    former = _end_served()
    listener = _listen(options.host, options.port, former)
    shelf = ModelShelf(load or _loader(options))
    try:
        app, root_path = _app(model, weights, options, listener, shelf, progress)
        demo = Demo(listener, app, shelf, root_path)
    except BaseException:
        shelf.close()
        listener.close()
        raise
    _served.append(demo)
    return demo


def _app(
    model: str,
    weights: str,
    options: DemoOptions,
    listener: socket.socket,
    shelf: ModelShelf,
    progress: LoadProgress | None,
) -> tuple[Any, str | None]:
    """Load the model while Gradio, which takes seconds, is imported; return the app to serve."""
    silence_gradio()
    say = Texts(options.language or default_language())
    context = DemoContext(
        shelf,
        say,
        offered_models(model),
        weights,
        any_model=options.is_private,
        kv_cache_dtype=options.kv_cache_dtype,
    )
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(shelf.fetch, context.choice(model, weights), progress)
        from dashinfer_lab.demo.page import build_page

        import_module("gradio")
        loading.result()
    page = build_page(context)
    root_path = options.root_path or notebook_proxy(listener.getsockname()[1])
    return _mounted(page, root_path), root_path


def _mounted(page: Any, root_path: str | None) -> Any:
    import gradio as gr
    from fastapi import FastAPI

    from dashinfer_lab.demo.page import HEAD, STYLE, theme

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        root_path=root_path,
        theme=theme(),
        css_paths=STYLE,
        head=HEAD,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        enable_monitoring=False,
        max_file_size=_LARGEST_UPLOAD,
    )
    return _OnlyFromHere(app)


class _OnlyFromHere:
    """Adds headers that keep the browser from fetching anything from elsewhere."""

    def __init__(self, app: Any) -> None:
        self._app: Final = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS.items()]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _loader(options: DemoOptions) -> Load:
    def load(choice: Choice, progress: LoadProgress | None) -> LLM:
        from dashinfer_lab.llm import LLM

        model, template = options.chat_template or ("", None)
        return LLM(
            choice.model,
            weights=choice.weights,
            threads=options.threads,
            kv_cache_dtype=choice.kv_cache_dtype,
            progress=progress or False,
            chat_template=template if choice.model == model else None,
        )

    return load


def _end_served() -> list[int]:
    """End the page that is served; return its port."""
    ports = [demo.port for demo in _served]
    while _served:
        _served[-1].close()
    return ports


def _listen(host: str, port: int | None, former: list[int]) -> socket.socket:
    """Take `port`, or the first free one of `former` and from 7860 on."""
    usual = [*former, *range(_FIRST_PORT, _FIRST_PORT + _PORTS)]
    wanted = usual if port is None else [port]
    for each in wanted:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, each))
            listener.listen()
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(f"cannot listen on {host}:{each}: {error.strerror}") from error
        else:
            return listener
    taken = f"port {port} is" if port is not None else f"ports {_FIRST_PORT} to {usual[-1]} are"
    raise ConfigError(f"{taken} taken on {host}: end what uses it, or name another with port=")
