"""A hub on a loopback port that speaks to the real clients and misbehaves where asked.

ModelScope: /api/v1/models/{id}/repo/files, /repo?FilePath (with Range), internalAccelerationInfo.
Hugging Face: /api/models/{id}/revision/{revision}, /{id}/resolve/{commit}/{file}.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = Mapping[str, bytes]
COMMIT = "c0ffee" + "0" * 34
BLOCK = 64 << 10
MODEL = "lab/tiny"
WEIGHTS = "model.safetensors"


@dataclass
class LoopbackHub:
    """What is served, what goes wrong, and what was asked. Faults of a file happen once."""

    models: dict[tuple[str, str], Files]
    """Files by (owner/name, revision)."""
    url: str = ""
    token: str | None = None
    """What a request must carry, if anything."""
    web_page: bool = False
    """Answer everything with HTML, as a portal of a hotel would."""
    cut_after: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes after which the connection is dropped."""
    flipped: set[str] = field(default_factory=set[str])
    """Files whose first byte is wrong in the next answer."""
    always_flipped: set[str] = field(default_factory=set[str])
    no_hashes: bool = False
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(
        default_factory=dict[str, Any]
    )
    """Files that are answered otherwise than by what they hold."""
    stated: dict[str, dict[str, object]] = field(default_factory=dict[str, Any])
    """What a list says of a file in place of what is so."""
    gate: threading.Event | None = None
    """Between two blocks of a file, wait for this."""
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """File and Range header of every file asked for."""
    requests: int = 0

    def names(self) -> set[str]:
        """Files that were asked for."""
        return {name for name, _ in self.asked}


@contextmanager
def serving(models: dict[tuple[str, str], Files]) -> Iterator[LoopbackHub]:
    """Serve `models` until the block ends; then the port is closed and every thread has ended."""
    hub = LoopbackHub(models)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = False
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        if hub.gate is not None:
            hub.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()  # waits for the handlers


def _large_file(content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return {"sha256": digest, "size": len(content), "pointerSize": 134}


class _Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.hub.requests += 1
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self.hub.web_page:
            return self._send(200, b"<!DOCTYPE html><p>Welcome", {"Content-Type": "text/html"})
        if url.path == "/api/v1/repos/internalAccelerationInfo":
            return self._json({"Data": {"InternalRegionQueryAddress": ""}})
        if self.hub.token is not None and self.hub.token not in str(self.headers):
            return self._fail(401, "login first")
        if match := re.fullmatch(r"/api/v1/models/([^/]+/[^/]+)/repo(/files)?", url.path):
            files = self.hub.models.get((match[1], query.get("Revision", "master")))
            if files is None:
                return self._fail(404, "not found")
            return self._list(files) if match[2] else self._file(files, query["FilePath"])
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", url.path):
            return self._hugging_face_info(match[1], match[2])
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", url.path):
            files = self.hub.models.get((match[1], "main"), {})
            return self._file(files, unquote(match[3]))
        return self._fail(404, "no such route")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _list(self, files: Files) -> None:
        rows = [
            {"Path": path, "Name": path.rpartition("/")[2], "Type": "blob", "Size": len(content)}
            | ({} if self.hub.no_hashes else {"Sha256": hashlib.sha256(content).hexdigest()})
            | self.hub.stated.get(path, {})
            for path, content in files.items()
        ]
        self._json({"Code": 200, "Success": True, "Data": {"Files": rows}})

    def _hugging_face_info(self, model: str, revision: str) -> None:
        files = self.hub.models.get((model, revision))
        if files is None:
            code = "RepoNotFound" if (model, "main") not in self.hub.models else "RevisionNotFound"
            return self._fail(404, "not found", {"X-Error-Code": code})
        rows = [
            {"rfilename": path, "size": len(content)}
            | ({} if self.hub.no_hashes else {"lfs": _large_file(content)})
            | self.hub.stated.get(path, {})
            for path, content in files.items()
        ]
        return self._json({"id": model, "sha": COMMIT, "siblings": rows, "tags": []})

    def _file(self, files: Files, name: str) -> None:
        if name not in files:
            return self._fail(404, "not found")
        content, asked = files[name], self.headers.get("Range") or ""
        if self.command == "GET":
            self.hub.asked.append((name, asked))
            if name in self.hub.answers:
                with suppress(OSError):  # the client went away
                    self.hub.answers[name](self)
                return None
        digest = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if not self.hub.no_hashes:
            headers["X-Linked-ETag"] = f'"{digest}"'
        status, start = 200, 0
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
        if match and int(match[1]) >= len(content):
            return self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        if match:
            start, end = int(match[1]), int(match[2] or len(content) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
            status, content = 206, content[start : end + 1]
        if name in self.hub.flipped | self.hub.always_flipped and self.command == "GET":
            self.hub.flipped.discard(name)
            content = bytes([content[0] ^ 0xFF]) + content[1:]
        cut = self.hub.cut_after.pop(name, None) if self.command == "GET" else None
        return self._send(status, content, headers, cut)

    def _json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _fail(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps({"Code": status, "Success": False, "Message": why}).encode()
        self._send(status, body, {"Content-Type": "application/json", **(headers or {})})

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")  # `server_close` waits for every connection
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = body if cut is None else body[:cut]
        with suppress(OSError):  # the client went away, as a killed one does
            for start in range(0, len(sent), BLOCK):
                if start and self.hub.gate is not None:
                    self.hub.gate.wait(30)
                self.wfile.write(sent[start : start + BLOCK])
