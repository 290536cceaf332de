"""How the demo is served: to a proxy, in Chinese, to programs, on a taken port, and for real."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dashinfer_lab.demo import Demo, DemoOptions, serve
from dashinfer_lab.errors import ConfigError, HubError
from tests.browser.conftest import SCREENSHOTS, Visitor, Watched
from tests.browser.prefix_proxy import prefix_proxy
from tests.demo.conftest import eventually
from tests.demo.scripted_model import KV_REASON, ScriptedLLM

pytestmark = pytest.mark.filterwarnings("default")  # of a server's own libraries

PREFIX = "/user/me/proxy/7860"
BOX = "#message textarea"


class Pages:
    """Serves pages over scripted models, and ends them."""

    def __init__(self) -> None:
        self.models: list[ScriptedLLM] = []

    def serve(self, model: str = "script", **options: Any) -> Demo:
        return serve(model, "fp32", DemoOptions(**options), load=self._load)

    def _load(self, choice: Any, progress: object) -> Any:
        self.models.append(ScriptedLLM(choice))
        return self.models[-1]

    @property
    def num_running(self) -> int:
        return sum(llm.engine.stats().num_running for llm in self.models)


@pytest.fixture
def pages() -> Iterator[Pages]:
    """Serves pages; the last one is ended after the test, and no thread of it is left."""
    made = Pages()
    served: list[Demo] = []
    original = made.serve

    def remembered(*arguments: Any, **options: Any) -> Demo:
        served.append(original(*arguments, **options))
        return served[-1]

    made.serve = remembered  # type: ignore[method-assign]
    yield made
    for demo in served:
        demo.close()
    names = {thread.name for thread in threading.enumerate()}
    assert "dashinfer-lab-demo" not in names


def ask(tab: Watched, message: str) -> str:
    """Send a message and return the line under its answer."""
    tab.page.fill(BOX, message)
    tab.page.press(BOX, "Enter")
    note = tab.page.locator("#chat .note").first
    note.wait_for()
    return str(note.inner_text())


def test_behind_a_proxy_with_a_prefix_everything_works(pages: Pages, visitor: Visitor) -> None:
    demo = pages.serve(root_path=PREFIX, language="en")
    with prefix_proxy(demo.url, PREFIX) as address:
        tab = visitor.open(address)
        ask(tab, "say hello")
        assert "hello" in tab.text_of("#chat")
        tab.page.click("#clear")
        tab.page.locator("#chat .note").wait_for(state="detached")
        tab.page.fill(BOX, "count")
        tab.page.press(BOX, "Enter")
        assert eventually(lambda: pages.num_running == 1)
        tab.page.click("#stop")
        assert eventually(lambda: pages.num_running == 0)
        tab.page.context.close()


def test_a_page_for_a_proxy_is_shown_directly_too(pages: Pages, visitor: Visitor) -> None:
    demo = pages.serve(root_path=PREFIX, language="en")
    tab = visitor.open(demo.url)

    assert "tokens" in ask(tab, "say hello")
    assert demo.proxy_url == PREFIX


def test_a_sign_says_that_the_first_token_is_awaited(pages: Pages, visitor: Visitor) -> None:
    tab = visitor.open(pages.serve(language="en").url)
    pages.models[0].runner.gate.clear()
    tab.page.fill(BOX, "say a")
    tab.page.press(BOX, "Enter")
    waiting = tab.page.locator("#chat .waiting")
    waiting.wait_for()
    assert waiting.inner_text() == "waiting for the first token …"
    pages.models[0].runner.gate.set()
    tab.page.locator("#chat .note").wait_for()

    assert waiting.count() == 0


def test_in_chinese_every_label_is_chinese(pages: Pages, visitor: Visitor) -> None:
    tab = visitor.open(pages.serve("script", language="zh").url, locale="zh-CN")
    note = ask(tab, "say 你好")
    tab.page.locator("#facts dd").filter(has_text=KV_REASON["zh"]).wait_for()
    for name in ("系统提示词", "采样"):
        tab.page.get_by_role("button", name=name).click()
    tab.screenshot("chinese")
    for name in ("对比", "性能剖析", "对话"):
        tab.page.get_by_role("tab", name=name).click()
        shown = tab.text_of("body")
        words = set(re.findall(r"[A-Za-z]{3,}", shown))
        assert words <= {
            *("DashInfer", "Lab", "CPU", "GGUF", "ModelScope", "auto", "Top", "say"),
            *("script", "scripted", "The", "quick", "brown", "fox", "jumps", "over", "the"),
            *("lazy", "dog"),
        }

    assert "词元/秒" in note


def test_a_model_of_english_is_asked_in_english_and_a_larger_one_is_a_click_away(
    pages: Pages, visitor: Visitor
) -> None:
    tab = visitor.open(pages.serve("smollm2-135m", language="zh").url, locale="zh-CN")
    tab.page.get_by_role("button", name="Write a haiku about rain.").wait_for()
    told = tab.page.get_by_text("仅支持英文")
    told.wait_for()
    tab.page.get_by_role("tab", name="对比").click()
    assert tab.page.input_value("#compare-prompt textarea").startswith("Explain")
    tab.screenshot("english-only")

    tab.page.click("#larger-model")
    tab.page.locator("#larger-model").wait_for(state="hidden")
    told.wait_for(state="hidden")

    assert tab.page.input_value("#model input") == "qwen/Qwen1.5-0.5B-Chat"
    assert pages.models[-1].choice.model == "qwen/Qwen1.5-0.5B-Chat"


def test_a_page_for_others_offers_no_download(
    pages: Pages, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DemoOptions, "is_private", False)
    tab = visitor.open(pages.serve("smollm2-135m", language="en").url)

    tab.page.get_by_text("understands English only").wait_for()
    assert not tab.page.locator("#larger-model").is_visible()


def test_a_program_that_cancels_ends_its_request_in_the_engine(pages: Pages) -> None:
    client_library = pytest.importorskip("gradio_client")
    demo = pages.serve(language="en")
    client = client_library.Client(demo.url, verbose=False, analytics_enabled=False)
    job = client.submit("count", "script", "fp32", "auto", "", 0, 1, 0, 4000, "", api_name="/send")
    assert eventually(lambda: pages.num_running == 1)
    job.cancel()

    assert eventually(lambda: pages.num_running == 0)
    client.close()


def test_serving_again_ends_the_former_page_and_frees_its_model(pages: Pages) -> None:
    first = pages.serve()
    second = pages.serve(port=first.port)

    assert second.port == first.port
    assert [llm.engine.alive for llm in pages.models] == [False, True]
    assert "closed" in repr(first)


def test_pages_that_ended_leave_nothing_of_themselves_in_memory(pages: Pages) -> None:
    gradio = pytest.importorskip("gradio")

    def alive() -> int:
        return sum(type(each) is gradio.Blocks for each in gc.get_objects())

    before = alive()
    demos = [pages.serve() for _ in range(3)]
    urlopen(demos[-1].url).close()
    served = alive()
    demos[-1].close()

    assert (served - before, alive() - before) == (1, 0)


def test_a_page_that_ends_under_an_open_tab_prints_no_error(
    pages: Pages, visitor: Visitor, capfd: pytest.CaptureFixture[str]
) -> None:
    demo = pages.serve(language="en")
    tab = visitor.open(demo.url)
    ask(tab, "say hello")
    demo.close()
    tab.page.context.close()
    tab.problems.clear()  # the tab asks after a page that ended

    said = capfd.readouterr()
    assert said.out + said.err == ""
    assert logging.getLogger("uvicorn.error").filters == []


def test_a_taken_port_is_named(pages: Pages) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is taken on 127.0.0.1.*port="):
            pages.serve(port=port)


def test_a_model_that_is_not_there_is_not_served(pages: Pages) -> None:
    with pytest.raises(HubError, match="missing"):
        pages.serve("missing")


def test_it_listens_on_this_machine_alone(pages: Pages) -> None:
    demo = pages.serve()
    addresses = {
        line.split()[1].rpartition(":")[0]
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        if int(line.split()[1].rpartition(":")[2], 16) == demo.port and line.split()[3] == "0A"
    }

    assert addresses == {"0100007F"}


def test_the_server_calls_nobody(
    pages: Pages, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
            called.append(address)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    ask(visitor.open(pages.serve(language="en").url), "say hi")

    assert called == []
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"


@pytest.mark.parametrize("option", [{"port": 0}, {"port": 70000}, {"root_path": "proxy"}])
def test_impossible_options_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        DemoOptions(**option)


@pytest.mark.timeout(400)
def test_the_command_answers_with_the_embedded_model_and_ends_at_ctrl_c(
    embedded_gguf: Path, visitor: Visitor, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "dashinfer_lab", "--lang", "en", "demo", "smollm2-135m"]
    environment = {**os.environ, "DASHINFER_LAB_EMBEDDED": str(embedded_gguf)}
    environment["JUPYTERHUB_SERVICE_PREFIX"] = "/user/me/"
    log = tmp_path / "log"
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=environment)
    try:
        proxied_line = re.compile(r"/user/me/proxy/\d+\n")
        ready = eventually(lambda: bool(proxied_line.search(log.read_text("utf-8"))), seconds=180)
        assert ready, log.read_text(encoding="utf-8")
        url, proxied = re.findall(r"http://\S+|/user/me/proxy/\d+", log.read_text("utf-8"))
        assert proxied.endswith(url.rpartition(":")[2])
        tab = visitor.open(url)
        tab.page.set_default_timeout(60_000)
        tab.page.get_by_role("button", name="Sampling").click()
        tab.page.locator("#temperature input[type=number]").fill("0")
        tab.page.locator("#max-tokens input[type=number]").fill("16")
        note = ask(tab, "What is the capital of France?")
        assert re.search(r"\d+ tokens · [\d.]+ tokens/s · first token after [\d.]+ s$", note)
        assert tab.page.locator("#chat .bot .message").first.inner_text().strip()
        tab.page.get_by_role("tab", name="Profile").click()
        tab.page.click("#profile-run")
        tab.page.locator("#profile-report").get_by_text("linear_u8").first.wait_for()
        assert "roof was not measured" not in tab.page.locator("#profile-report").inner_text()
        tab.page.screenshot(path=SCREENSHOTS / "embedded-profile.png", full_page=True)
        tab.page.context.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
