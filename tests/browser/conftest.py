"""A headless browser that tells on its pages: errors of the console, requests that leave here.

Reusable for any page on the loopback, a notebook's as well as the demo's. Screenshots go to
`.screenshots/`, which git ignores.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

SCREENSHOTS = Path(__file__).resolve().parents[2] / ".screenshots"
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}
_FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_HERE = {"127.0.0.1", "localhost", ""}
_WAIT_MS = 15_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs a browser, and servers in other threads."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)


@dataclass
class Watched:
    """A page, and what it did that it should not."""

    page: Any
    problems: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def screenshot(self, name: str) -> None:
        """Keep a picture for a person to look at."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def text_of(self, selector: str) -> str:
        """Text as it is shown."""
        return str(self.page.locator(selector).inner_text())


@dataclass
class Visitor:
    """Opens pages; each is a tab of its own, in a context of its own where it is asked for."""

    browser: Any
    opened: list[Watched] = field(default_factory=list)

    def open(
        self,
        url: str,
        *,
        size: dict[str, int] | None = None,
        wait_ms: int = _WAIT_MS,
        **context: Any,
    ) -> Watched:
        """Open `url`; `context` as Playwright's `new_context` takes it.

        wait_ms: how long anything on the page is waited for.
        """
        page = self.browser.new_context(viewport=size or DESKTOP, **context).new_page()
        page.set_default_timeout(wait_ms)
        watched = Watched(page)
        page.on("console", lambda message: _note(watched, message))
        page.on("pageerror", lambda error: watched.problems.append(str(error)))
        page.on("request", lambda request: _judge(watched, request.url))
        self.opened.append(watched)
        page.goto(url)
        return watched


def _note(watched: Watched, message: Any) -> None:
    if message.type == "error":
        watched.problems.append(f"{message.text} {message.location.get('url', '')}")


def _judge(watched: Watched, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname not in _HERE:
        watched.outside.append(url)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, driven by Playwright."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=executable, headless=True, args=list(_FLAGS))
        yield started
        started.close()


@pytest.fixture
def visitor(browser: Any) -> Iterator[Visitor]:
    """Opens pages; afterwards none had an error in its console, and none asked beyond here."""
    visiting = Visitor(browser)
    yield visiting
    for watched in visiting.opened:
        watched.page.context.close()
    assert [watched.problems for watched in visiting.opened if watched.problems] == []
    assert [watched.outside for watched in visiting.opened if watched.outside] == []
