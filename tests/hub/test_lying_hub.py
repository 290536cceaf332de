"""A hub that lies about its files, sends others, or sends nothing: refused, and nothing is kept."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from dashinfer_lab.errors import HubError, HubUnreachableError
from dashinfer_lab.hub import resolve
from dashinfer_lab.hub.snapshots import is_complete
from tests.hub.loopback_hub import MODEL, WEIGHTS, LoopbackHub, serving

pytest.importorskip("modelscope_hub")

Files = dict[str, bytes]
Answer = Callable[[BaseHTTPRequestHandler], None]
LISTED_BYTES = 1 << 18
MEGABYTE = b"\0" * (1 << 20)


@pytest.fixture(autouse=True)
def _impatient(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks once more, and waits half a second for an answer."""
    from modelscope_hub import _download, _legacy_api

    monkeypatch.setattr(_download, "DOWNLOAD_RETRY_TIMES", 1)
    monkeypatch.setattr(_download, "DOWNLOAD_RETRY_MAX_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(_legacy_api, "DOWNLOAD_TIMEOUT", 0.5)


def answer(status: int, body: bytes = b"", **headers: str | int) -> Answer:
    """Answer with these headers, underscores as hyphens, and this body."""

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in ({"Content_Length": len(body)} | headers).items():
            request.send_header(name.replace("_", "-"), str(value))
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(body)

    return send


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Connection", "close")
    request.end_headers()
    for _ in range(1 << 20):  # a terabyte, unless the client leaves
        request.wfile.write(MEGABYTE)


def hanging(request: BaseHTTPRequestHandler) -> None:
    answer(200, b"x" * 100, Content_Length=LISTED_BYTES)(request)
    threading.Event().wait(2)


WRONG: dict[str, Answer] = {
    "longer without an end": endless,
    "longer as it says": answer(200, MEGABYTE),
    "longer when unpacked": answer(200, gzip.compress(MEGABYTE * 20), Content_Encoding="gzip"),
    "shorter as it says": answer(200, b"x" * 1000),
    "nothing": answer(200),
    "no such range": answer(416, Content_Range="bytes */1"),
    "other bytes": answer(200, b"x" * LISTED_BYTES),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_the_file_listed_is_refused_and_not_kept(
    hub: LoopbackHub, checkpoint: Files, tmp_path: Path, name: str
) -> None:
    hub.models[MODEL, "master"] = {**checkpoint, WEIGHTS: b"w" * LISTED_BYTES}
    hub.answers[WEIGHTS] = WRONG[name]

    with pytest.raises(HubError):
        resolve(MODEL)
    assert not list(tmp_path.glob(f"cache/**/{WEIGHTS}*"))
    del hub.answers[WEIGHTS]
    assert is_complete(resolve(MODEL))


SILENT: dict[str, Answer] = {
    "cut each time": answer(200, b"x" * 1000, Content_Length=LISTED_BYTES),
    "sent round": lambda it: answer(302, Location=it.path)(it),
    "sent to a file of this machine": answer(302, Location="file:///etc/passwd"),
    "out of order": answer(500),
    "waits for a day": answer(429, Retry_After=86400),
    "hangs": hanging,
}


@pytest.mark.parametrize("name", SILENT)
def test_what_never_comes_ends_in_an_error_that_names_the_way_out(
    hub: LoopbackHub, checkpoint: Files, name: str
) -> None:
    hub.models[MODEL, "master"] = {**checkpoint, WEIGHTS: b"w" * LISTED_BYTES}
    hub.answers[WEIGHTS] = SILENT[name]

    with pytest.raises(HubUnreachableError, match="does not answer.*Check the network"):
        resolve(MODEL)


def test_a_token_is_not_carried_to_another_host(
    hub: LoopbackHub, checkpoint: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def elsewhere(request: BaseHTTPRequestHandler) -> None:
        told.append(str(request.headers))
        answer(200, checkpoint[WEIGHTS])(request)

    hub.token = "s3cret"
    monkeypatch.setenv("MODELSCOPE_API_TOKEN", "s3cret")
    with serving({(MODEL, "main"): checkpoint}) as other:
        other.answers[WEIGHTS] = elsewhere
        place = other.url.replace("127.0.0.1", "localhost")
        hub.answers[WEIGHTS] = answer(302, Location=f"{place}/{MODEL}/resolve/main/{WEIGHTS}")

        assert is_complete(resolve(MODEL))
    assert len(told) == 1
    assert "s3cret" not in told[0]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ({"Size": -5}, "with -5 bytes: refused"),
        ({"Size": 1 << 60}, "bytes: refused"),
        ({"Size": "x"}, "could not be fetched"),
        ({"Size": 1}, "not what it lists"),
        ({"Size": None}, "not the 0 bytes that the hub lists"),
        ({"Path": 7}, "lists the file 7 with .*: refused"),
        ({"Path": "config.json"}, "holds no safetensors file"),
        ({"Sha256": 5}, "the hash 5: refused"),
        ({"Sha256": "0" * 64}, "not what it lists"),
    ],
    ids=str,
)
def test_a_list_that_lies_is_refused_by_name(
    hub: LoopbackHub, said: dict[str, object], refused: str
) -> None:
    hub.stated[WEIGHTS] = said

    with pytest.raises(HubError, match=refused):
        resolve(MODEL)
    assert not is_complete(hub_place())


def hub_place() -> Path:
    """Where the model would lie, complete."""
    from dashinfer_lab.config import cache_root

    return cache_root() / "models" / "lab--tiny" / "snapshots" / "master"


def test_a_part_that_is_longer_than_the_file_is_fetched_anew(
    hub: LoopbackHub, checkpoint: Files
) -> None:
    staging = hub_place().with_name(".fetch-master")
    staging.mkdir(parents=True)
    (staging / f"{WEIGHTS}.incomplete").write_bytes(checkpoint[WEIGHTS] + b"more")
    path = resolve(MODEL)

    assert (path / WEIGHTS).read_bytes() == checkpoint[WEIGHTS]
