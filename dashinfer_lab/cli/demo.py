"""`dashinfer-lab demo`: a chat with MODEL in the browser, served on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from dashinfer_lab.cli.messages import language, text
from dashinfer_lab.cli.options import ChatTemplate, KvCacheDtype, Model, Threads, Weights
from dashinfer_lab.cli.output import remark
from dashinfer_lab.progress import load_bars

__all__ = ["demo"]


def demo(
    model: Model = "smollm2-135m",
    weights: Weights = "auto",
    kv_cache_dtype: KvCacheDtype = "auto",
    threads: Threads = None,
    chat_template: ChatTemplate = None,
    host: Annotated[
        str, typer.Option(help="Who may reach it; 0.0.0.0 lets everyone on the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="By default a free one from 7860 on.")
    ] = None,
    root_path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="What a proxy puts before the page; by default that of the notebook around.",
        ),
    ] = None,
) -> None:
    """Talk with MODEL in the browser; Ctrl-C ends. Nothing is shared beyond HOST."""
    from dashinfer_lab.demo import DemoOptions, serve

    options = DemoOptions(
        host=host,
        port=port,
        root_path=root_path,
        threads=threads,
        kv_cache_dtype=kv_cache_dtype,
        language=language(),
        chat_template=None if chat_template is None else (model, chat_template),
    )
    with load_bars(language()) as progress:
        page = serve(model, weights, options, progress=progress)
    with page:
        remark(text("demo.ready", url=page.url))
        if page.proxy_url is not None:
            remark(text("demo.proxy", url=page.proxy_url))
        try:
            page.wait()
        except KeyboardInterrupt:
            remark(text("demo.ended"))
