"""A proxy like a hosted notebook's: shows a server of this machine under a prefix of its own.

What it is made of comes with Gradio and is imported where used: where that is not installed, the
tests of this directory are collected all the same.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE"]
_HOP = {"connection", "host", "transfer-encoding", "content-length", "keep-alive"}


@contextmanager
def prefix_proxy(target: str, prefix: str) -> Iterator[str]:
    """Show `target` under `prefix`, which is taken away on the way; yield the address there."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    routes = [
        Route("/favicon.ico", _icon),  # the host's own
        Route(f"{prefix}/{{rest:path}}", _forward(target), methods=METHODS),
    ]
    app = Starlette(routes=routes, lifespan=_connections)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{prefix}/"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@asynccontextmanager
async def _connections(app: Any) -> AsyncGenerator[None]:
    """Connections to what is shown, for as long as the proxy runs."""
    import httpx

    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
        app.state.client = client
        yield


def _icon(request: Any) -> Any:
    from starlette.responses import Response

    del request
    return Response(status_code=204)


def _forward(target: str) -> Any:
    from starlette.responses import StreamingResponse

    async def forward(request: Any) -> Any:
        client = request.app.state.client
        headers = [(k, v) for k, v in request.headers.items() if k not in _HOP]
        url = f"{target}/{request.path_params['rest']}"
        asked = client.build_request(
            request.method,
            url,
            params=request.query_params,
            headers=headers,
            content=await request.body(),
        )
        answer = await client.send(asked, stream=True)

        async def body() -> AsyncGenerator[bytes]:
            try:
                async for part in answer.aiter_raw():
                    yield part
            finally:
                await answer.aclose()

        kept = {k: v for k, v in answer.headers.items() if k not in _HOP}
        return StreamingResponse(body(), answer.status_code, kept)

    return forward
