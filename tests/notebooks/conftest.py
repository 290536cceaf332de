"""A kernel as a notebook has it, driven from here: cells, what they say, interrupts."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 90


@dataclass(frozen=True)
class Reply:
    """How a cell ended: the name of its error or None, and what it said on stdout and stderr."""

    error: str | None
    text: str
    warned: str


@dataclass
class NotebookKernel:
    """Runs cells one after another; `interrupt_seconds` is when it was interrupted last.

    It is of the clock that the kernel reads as `time.monotonic()`, too.
    """

    manager: Any
    client: Any
    interrupt_seconds: float = field(default=0.0)

    def run(self, code: str, interrupt_at: str | None = None) -> Reply:
        """Run a cell; once its text has `interrupt_at`, do what Kernel → Interrupt does."""
        said: dict[str, list[str]] = {"stdout": [], "stderr": []}
        told = threading.Event()

        def hear(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                said[message["content"]["name"]].append(message["content"]["text"])
            if interrupt_at and interrupt_at in "".join(said["stdout"]) and not told.is_set():
                told.set()
                self.interrupt_seconds = time.monotonic()
                self.manager.interrupt_kernel()

        reply = self.client.execute_interactive(
            code, output_hook=hear, timeout=_TIMEOUT_SECONDS, allow_stdin=False
        )
        assert interrupt_at is None or told.is_set()
        printed, warned = ("".join(said[name]) for name in ("stdout", "stderr"))
        return Reply(reply["content"].get("ename"), printed, warned)

    def value(self, expression: str) -> str:
        """What an expression prints; its cell has to end well."""
        reply = self.run(f"print({expression})")
        assert reply.error is None, reply
        return reply.text.strip()


@pytest.fixture(scope="module")
def kernels(
    tmp_path_factory: pytest.TempPathFactory, embedded_gguf: Path
) -> Iterator[Callable[[], NotebookKernel]]:
    """Starts kernels with this repository on their path; ended afterwards."""
    manager_module = pytest.importorskip("jupyter_client.manager")
    started: list[NotebookKernel] = []
    environment = {
        **os.environ,
        **{name: str(tmp_path_factory.mktemp(name)) for name in JUPYTER_FOLDERS},
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "DASHINFER_LAB_EMBEDDED": str(embedded_gguf),
    }

    def start() -> NotebookKernel:
        manager, client = manager_module.start_new_kernel(env=environment)
        started.append(NotebookKernel(manager, client))
        return started[-1]

    yield start
    for each in started:
        each.client.stop_channels()
        each.manager.shutdown_kernel(now=True)


JUPYTER_FOLDERS = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
