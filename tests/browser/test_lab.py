"""Notebooks in JupyterLab, run by its menu: views show themselves, and their controls act."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.browser.conftest import Visitor, Watched
from tests.notebooks.conftest import JUPYTER_FOLDERS, ROOT

pytestmark = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("default"),  # of Jupyter's own
]

# Every wait ends as soon as what it waits for is there: only a machine that others use comes near.
_START_SECONDS = 180
_WAIT_MS = 180_000
_RUN_MS = 600_000
_BEGIN_MS = 20_000
# All cells are in the page at once, not those in sight alone; nobody is asked about news.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
PROMPTS = ".jp-CodeCell .jp-InputArea-prompt"
TRACEBACK = "Traceback (most recent call last)"
ON_STDERR = "[data-mime-type$='jupyter.stderr'], [data-mime-type$='jupyter.error']"
DONE = f"""() =>
    [...document.querySelectorAll("{ON_STDERR}")]
    .some(it => it.textContent.includes('{TRACEBACK}')) ||
    [...document.querySelectorAll('{PROMPTS}')]
    .every(it => /^\\[\\d+\\]:$/.test(it.textContent.trim()))"""

# JupyterLab stumbles over what is run before its kernel is connected, or loses it.
CONNECTED = """() => {
    const session = globalThis.jupyterapp?.shell.currentWidget?.sessionContext;
    return session?.isReady && session.session?.kernel?.connectionStatus === 'connected';
}"""
BEGUN = f"""() => [...document.querySelectorAll('{PROMPTS}')]
    .some(it => /\\[[*\\d]/.test(it.textContent))"""
ASKED = ".jp-Dialog .jp-mod-accept"
BEGUN_OR_ASKED = f"""() => document.querySelector('{ASKED}') || ({BEGUN})()"""
# Cells that wait for their turn have a star.
SETTLED = f"""() => ({DONE})() || ![...document.querySelectorAll('{PROMPTS}')]
    .some(it => it.textContent.includes('*'))"""

BROKEN = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": str(number),
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(("print(1)", "1 / 0", "print(2)"))
    ],
    "metadata": {"kernelspec": {"display_name": "", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}

NEW_PICTURE = """([view, before]) => {
    const it = view.querySelector('img');
    return it && it.complete && it.naturalWidth > 300 && it.src !== before;
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, embedded_gguf: Path) -> Iterator[str]:
    """JupyterLab over copies of the notebooks; its address."""
    pytest.importorskip("jupyterlab", reason="pip install 'dashinfer-lab[notebook]'")
    folder = tmp_path_factory.mktemp("lab")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, folder)
    (folder / "broken.ipynb").write_text(json.dumps(BROKEN))
    homes = {name: str(tmp_path_factory.mktemp(name)) for name in JUPYTER_FOLDERS}
    for name, settings in SETTINGS.items():
        kept = Path(homes["JUPYTER_CONFIG_DIR"], "lab/user-settings/@jupyterlab", name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.with_suffix(".jupyterlab-settings").write_text(json.dumps(settings))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    environment = {
        **os.environ,
        **homes,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "DASHINFER_LAB_EMBEDDED": str(embedded_gguf),
        "MODELSCOPE_ENDPOINT": "http://127.0.0.1:9",  # no test reaches for the network
    }
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *(
            f"--ServerApp.root_dir={folder}",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
        ),
        *("--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=", "--ServerApp.password="),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.expose_app_in_browser=True",
    ]
    log = tmp_path_factory.mktemp("log") / "lab.log"
    with (
        log.open("w") as said,
        subprocess.Popen(command, env=environment, stdout=said, stderr=said) as server,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}/api", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()  # ends its kernels
            server.wait(30)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            urlopen(url, timeout=5).close()
        except (URLError, ConnectionError):
            time.sleep(0.2)
        else:
            return
    raise AssertionError("JupyterLab did not start")


@pytest.fixture
def tab(lab: str, visitor: Visitor, request: pytest.FixtureRequest) -> Watched:
    """A notebook in which Run → Run All Cells was chosen, and everything ran."""
    name = str(request.param)
    tab = opened(lab, visitor, name)
    run_all(tab)
    tab.screenshot(f"lab-{name}")
    assert errors(tab) == []
    assert tab.page.evaluate(DONE), tab.page.locator(PROMPTS).all_inner_texts()
    return tab


def opened(lab: str, visitor: Visitor, name: str) -> Watched:
    """A notebook whose kernel waits for cells."""
    tab = visitor.open(f"{lab}/lab/workspaces/{name}/tree/{name}.ipynb", wait_ms=_WAIT_MS)
    tab.page.wait_for_function(CONNECTED)
    tab.page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    return tab


def came(tab: Watched, condition: str, within_ms: int) -> bool:
    """Whether a condition of the page became true in time."""
    from playwright.sync_api import TimeoutError as WaitedTooLong

    try:
        tab.page.wait_for_function(condition, timeout=within_ms)
    except WaitedTooLong:
        return False
    return True


def run_all(tab: Watched) -> None:
    """Run → Run All Cells, once more where that was lost on a kernel not yet heard of."""
    page = tab.page
    for _ in range(8):
        page.click('.lm-MenuBar-itemLabel:text-is("Run")')
        page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
        came(tab, BEGUN_OR_ASKED, _BEGIN_MS)
        if page.locator(ASKED).is_visible():
            page.click(ASKED)
            page.locator(ASKED).wait_for(state="detached")
            came(tab, BEGUN, _BEGIN_MS)
        if not came(tab, SETTLED, _RUN_MS) or page.evaluate(DONE):
            return


def errors(tab: Watched) -> list[str]:
    """Tracebacks in the notebook."""
    return list(tab.page.locator(ON_STDERR).filter(has_text=TRACEBACK).all_inner_texts())


def view(tab: Watched, title: str) -> Any:
    """The live view with this title."""
    return tab.page.locator(".dl-view.lm-Widget", has_text=title).first


def test_a_cell_that_fails_is_noticed(lab: str, visitor: Visitor) -> None:
    tab = opened(lab, visitor, "broken")
    run_all(tab)

    (error,) = errors(tab)
    assert "ZeroDivisionError" in error


@pytest.mark.parametrize("tab", ["03_profile_and_roofline"], indirect=True)
def test_the_profile_turns_from_table_to_roofline_to_timeline(tab: Watched) -> None:
    dashboard = view(tab, "Where the time goes")
    dashboard.locator("td", has_text="linear_u8").first.wait_for()
    assert dashboard.locator("img").count() == 0

    shown = []
    for kind in ("roofline", "timeline"):
        dashboard.locator(f".widget-toggle-button:text-is('{kind}')").click()
        picture = dashboard.locator("img")
        tab.page.wait_for_function(
            NEW_PICTURE,
            arg=[dashboard.element_handle(), shown[-1] if shown else ""],
        )
        shown.append(picture.get_attribute("src"))
        picture.scroll_into_view_if_needed()
        tab.screenshot(f"lab-{kind}")

    assert shown[0] != shown[1]
    assert dashboard.locator("td", has_text="linear_u8").count() == 0


@pytest.mark.parametrize("tab", ["00_quickstart"], indirect=True)
def test_the_quickstart_tells_what_fits_and_chats(tab: Watched) -> None:
    loader = view(tab, "Load a model")
    before = loader.inner_text()
    loader.get_by_label("Weights").select_option("fp32")
    tab.page.wait_for_function(
        "([it, before]) => it.innerText !== before", arg=[loader.element_handle(), before]
    )
    loader.scroll_into_view_if_needed()
    tab.screenshot("lab-loader")

    chat = view(tab, "Chat")
    chat.locator("textarea").fill("Name one planet, and nothing else. <b>bold</b>")
    chat.locator("button:text-is('Send')").click()
    chat.locator(".dl-model .dl-under", has_text="tokens/s").wait_for()
    assert "<b>bold</b>" in chat.locator(".dl-user").inner_text()
    chat.scroll_into_view_if_needed()
    tab.screenshot("lab-chat")
