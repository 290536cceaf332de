"""A measuring process: asked by a line of JSON, answering by a line, still while others measure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.bench.peers.environments import LeftOutError

__all__ = ["Worker"]


class Worker:
    """A worker's script in a process group of its own; a context manager that ends it.

    variables: added to its environment.
    What the engine prints goes to `log`. The group is stopped (SIGSTOP) except while it is asked:
    threads of an engine that spin, or poll, take nothing from another's measurement.
    """

    def __init__(
        self, python: Path, script: Path, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(python), str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                env=_environment() | dict(variables or {}),
            )

    @property
    def pid(self) -> int:
        """Id of the process, and of its group."""
        return self._process.pid

    def ask(self, seconds: float, **request: object) -> dict[str, Any]:
        """Send `request` and return the answer. Raises LeftOutError for none, or an error."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._awake(seconds):
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            except OSError as error:
                raise self._ended(seconds) from error
            line = process.stdout.readline()
        if not line:
            raise self._ended(seconds)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LeftOutError(str(answer["error"])[:300])
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    @contextmanager
    def _awake(self, seconds: float) -> Iterator[None]:
        """Let the group run, at most for `seconds`."""
        late = threading.Timer(seconds, self._signal, (signal.SIGKILL,))
        late.start()
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            late.cancel()
            self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _ended(self, seconds: float) -> LeftOutError:
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = lines[-1].strip()[:200] if lines else "it said nothing"
        return LeftOutError(
            f"its process ended with {code} (at most {seconds:g} s): {said} (see {self._log})"
        )


def _environment() -> dict[str, str]:
    """Ours, but nothing of ours is imported, and nothing is fetched from a hub."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**environment, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
