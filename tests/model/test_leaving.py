"""What a model leaves behind: memory after `close`, processes after a kill, a fork's confusion.

Each in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.hub.tiny_models import write_gguf

MEMORY = """
import gc, sys
import psutil
from dashinfer_lab import LLM, SamplingParams

def resident():
    gc.collect()
    return psutil.Process().memory_info().rss

def used(model, words, **options):
    llm = LLM(model, threads=1, progress=False, **options)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    llm.generate(["hello " * words] * 4, params)
    return llm

used(sys.argv[1], 20).close()  # the libraries stay
before = resident()
llm = used(sys.argv[2], 400, kv_cache_bytes=256 << 20)
during = resident()
llm.close()
print(during - before, resident() - before, llm.memory().weight_bytes, llm.artifact.tensor(
    next(iter(llm.artifact.tensors))).size > 0)
"""

KILLED = """
import sys
from dashinfer_lab import LLM, SamplingParams

llm = LLM(sys.argv[1], threads=2, progress=False)
while True:
    llm.generate("hello", SamplingParams(max_tokens=50, ignore_eos=True))
    print("running", flush=True)
"""

FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python's own word on forks and threads
from dashinfer_lab import LLM, SamplingParams, allspark
from dashinfer_lab.errors import EngineError

llm = LLM(sys.argv[1], threads=2, progress=False)
engine = allspark.Engine()
engine.install_model(allspark.AsModelConfig(model_name="m", model_path=sys.argv[1]))
engine.start_model("m")
handle = llm.submit("hello", SamplingParams(max_tokens=100, ignore_eos=True))
child = os.fork()
if child == 0:
    handle.cancel()
    del handle
    for ask in (lambda: llm.generate("hello"), lambda: engine.start_request("m", [1])[2].Get()):
        try:
            ask()
        except EngineError as error:
            print(error, flush=True)
    llm.close()
    sys.exit(0)  # its exit handlers run
_, status = os.waitpid(child, 0)
print(status, len(handle.completion().token_ids))
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    return path


def _run(script: str, *arguments: object) -> list[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.model
def test_closing_gives_the_memory_back_though_the_model_is_still_held(
    tiny: Path, embedded_gguf: Path
) -> None:
    _run(MEMORY, tiny, embedded_gguf)  # kernels are compiled: LLVM keeps some 50 MB of its own
    (line,) = _run(MEMORY, tiny, embedded_gguf)
    during, after, weights, readable = line.split()

    assert int(during) > int(weights)
    assert int(after) < 50e6
    assert readable == "True"  # a tensor comes back from the file


def test_a_killed_process_leaves_no_other(tiny: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tiny)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    assert not any(each.is_running() for each in family)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_fork_is_told_that_it_has_no_engine_and_ends_by_itself(tiny: Path) -> None:
    *told, last = _run(FORKED, tiny)

    assert len(told) == 2
    assert all("make the engine after forking" in line for line in told)
    assert last == "0 100"
