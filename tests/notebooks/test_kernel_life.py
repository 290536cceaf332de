"""What people do to a kernel: interrupt it, run cells again, kill it, go without widgets."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable

import psutil
import pytest

from tests.notebooks.conftest import NotebookKernel

pytestmark = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # of Jupyter's own event loops and sockets
]

LOAD = """
from dashinfer_lab import LLM, SamplingParams
llm = LLM("smollm2-135m", weights="a16w8")
greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
answer = lambda: llm.generate("The capital of France is", greedy)[0].outputs[0].token_ids
"""
# The view is displayed, and what it loaded before is held by a name of the person's own.
LOADER = """
from dashinfer_lab import SamplingParams
from dashinfer_lab.widgets import ModelLoader
former = globals().get("llm")
loader = ModelLoader("smollm2-135m", weights="a16w8")
display(loader)
llm = loader.load()
greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
answer = lambda: llm.generate("The capital of France is", greedy)[0].outputs[0].token_ids
"""
# When a cell ended by an interrupt; IPython then takes its time to colour the traceback.
TIMED = """
import time

try:
{cell}
finally:
    ended = time.monotonic()
"""
# Says that a prefill has begun, from another thread: the kernel's own is in the cell.
LONG_PREFILL = """
import threading

def tell():
    while llm.engine.stats().num_running == 0:
        time.sleep(0.001)
    print("in prefill")

begun = threading.Thread(target=tell)
begun.start()
llm.generate({"prompt_token_ids": [100 + k % 5000 for k in range(7000)]}, greedy)
"""
LONG_DECODE = """
pieces = []
for piece in llm.stream("Once upon a time", SamplingParams(temperature=0, ignore_eos=True)):
    pieces.append(piece)
    print(piece, end="", flush=True)
"""


def timed(cell: str) -> str:
    return TIMED.format(cell=textwrap.indent(cell, "    "))


DEMO = """
import gc
import threading
from urllib.request import urlopen
from dashinfer_lab import LLM
from dashinfer_lab.demo import serve

alive = lambda: [it for it in gc.get_objects() if isinstance(it, LLM) and it.engine.alive]
ours = lambda: sorted(it.name for it in threading.enumerate() if "dashinfer" in it.name)
demo = serve("smollm2-135m", "a16w8")
urlopen(demo.url).close()
"""
RUNNING = "llm.engine.stats().num_running + llm.engine.stats().num_queued"
SETTLED = f"next(n for _ in iter(int, 1) for n in [{RUNNING}] if n == 0)"


@pytest.fixture(scope="module")
def kernel(kernels: Callable[[], NotebookKernel]) -> NotebookKernel:
    """A kernel that has loaded the model."""
    kernel = kernels()
    assert kernel.run(LOAD).error is None
    return kernel


def test_an_interrupt_ends_a_prefill_within_a_second_and_the_engine_goes_on(
    kernel: NotebookKernel,
) -> None:
    expected = kernel.value("answer()")

    reply = kernel.run(timed(LONG_PREFILL), interrupt_at="in prefill")

    assert reply.error == "KeyboardInterrupt"
    assert float(kernel.value("ended")) - kernel.interrupt_seconds < 1
    assert kernel.value(SETTLED) == "0"
    assert kernel.value("answer()") == expected


def test_an_interrupt_ends_decoding_within_a_second_and_keeps_what_was_said(
    kernel: NotebookKernel,
) -> None:
    expected = kernel.value("answer()")

    reply = kernel.run(timed(LONG_DECODE), interrupt_at=",")

    assert reply.error == "KeyboardInterrupt"
    assert float(kernel.value("ended")) - kernel.interrupt_seconds < 1
    assert kernel.value("''.join(pieces)").strip() in reply.text
    assert kernel.value("len(pieces) > 0") == "True"
    assert kernel.value(SETTLED) == "0"
    assert kernel.value("answer()") == expected


def test_running_the_load_cell_again_does_not_double_memory(kernel: NotebookKernel) -> None:
    process = psutil.Process(int(kernel.value("__import__('os').getpid()")))
    kernel.value("answer()")
    weight_bytes = int(kernel.value("llm.memory().weight_bytes"))
    memory_before, threads_before = process.memory_info().rss, process.num_threads()

    for _ in range(3):
        assert kernel.run(LOAD).error is None
        kernel.value("answer()")

    assert process.memory_info().rss - memory_before < weight_bytes / 2
    assert process.num_threads() == threads_before


def test_running_a_loaders_cell_again_does_not_double_memory(
    kernels: Callable[[], NotebookKernel],
) -> None:
    kernel = kernels()
    assert kernel.run(LOADER).error is None
    process = psutil.Process(int(kernel.value("__import__('os').getpid()")))
    kernel.value("answer()")
    weight_bytes = int(kernel.value("llm.memory().weight_bytes"))
    memory_before, threads_before = process.memory_info().rss, process.num_threads()

    for _ in range(3):
        reply = kernel.run(LOADER)
        assert reply.error is None, reply
        kernel.value("answer()")

    assert process.memory_info().rss - memory_before < weight_bytes / 2
    # Of each load a worker and the engine's thread would stay; a view's timer comes and goes.
    assert process.num_threads() < threads_before + 3
    assert kernel.value("former.engine.alive, llm.engine.alive") == "False True"


def test_both_forms_of_a_call_work_while_the_cells_event_loop_runs(kernel: NotebookKernel) -> None:
    expected = kernel.value("answer()")

    reply = kernel.run(
        "import asyncio\n"
        "from dashinfer_lab import AsyncLLM\n"
        "assert asyncio.get_running_loop().is_running()\n"
        "engine = AsyncLLM(llm)\n"
        "one = await engine.generate('The capital of France is', greedy)\n"
        "asked = (engine.generate('The capital of France is', greedy) for _ in range(3))\n"
        "several = await asyncio.gather(*asked)\n"
        "print(answer(), *(it.outputs[0].token_ids for it in (one, *several)), sep='\\n')"
    )

    assert reply.error is None, reply
    assert reply.text.splitlines() == [expected] * 5


def test_a_conversation_is_answered_by_await_and_without(kernel: NotebookKernel) -> None:
    reply = kernel.run(
        "from dashinfer_lab import AsyncLLM\n"
        "asked = [{'role': 'user', 'content': 'Name one planet.'}]\n"
        "(sync,) = llm.chat(asked, greedy)\n"
        "waited = await AsyncLLM(llm).chat(asked, greedy)\n"
        "print(sync.outputs[0].text, waited.outputs[0].text, sep='\\n---\\n')"
    )

    assert reply.error is None, reply
    one, other = reply.text.rstrip("\n").split("\n---\n")
    assert one == other != ""


def test_running_the_demo_cell_again_serves_in_place_of_the_former(
    kernels: Callable[[], NotebookKernel],
) -> None:
    pytest.importorskip("gradio", reason="pip install 'dashinfer-lab[demo]'")
    kernel = kernels()
    assert kernel.run(DEMO).error is None
    process = psutil.Process(int(kernel.value("__import__('os').getpid()")))
    address = kernel.value("demo.url")
    weight_bytes = int(kernel.value("sum(it.memory().weight_bytes for it in alive())"))
    memory_before, threads_before = process.memory_info().rss, kernel.value("ours()")

    for _ in range(2):
        reply = kernel.run(DEMO)
        assert reply.error is None, reply
        assert kernel.value("demo.url") == address
        assert kernel.value("urlopen(demo.url).status") == "200"

    assert kernel.value("len(alive())") == "1"
    # Two models more would be twice their weights; a page is 5 MB, and none of the former stays.
    assert process.memory_info().rss - memory_before < weight_bytes / 4
    assert kernel.value("ours()") == threads_before


def test_without_ipywidgets_loading_shows_a_bar_of_text(
    kernels: Callable[[], NotebookKernel],
) -> None:
    kernel = kernels()

    reply = kernel.run(
        "import sys\nsys.modules['ipywidgets'] = None\n"
        "from dashinfer_lab import LLM\n"
        "with LLM('smollm2-135m', weights='a16w8:512') as llm:\n    print(llm)"
    )

    assert reply.error is None, reply.text
    assert "a16w8:512" in reply.text
    assert "%" in reply.warned


def test_a_killed_kernel_leaves_no_process(kernels: Callable[[], NotebookKernel]) -> None:
    kernel = kernels()
    assert kernel.run(LOAD + "answer()").error is None
    process = psutil.Process(int(kernel.value("__import__('os').getpid()")))
    assert process.children(recursive=True) == []

    os.kill(process.pid, signal.SIGKILL)

    assert psutil.wait_procs([process], timeout=10)[1] == []
