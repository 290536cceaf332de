from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.peers.checkpoint import _for_others
from tests.bench.peers.environments import LeftOutError, installed
from tests.bench.peers.measuring import Measured, Plan, measure
from tests.bench.peers.recipes import OURS, RECIPES, WORKERS, Recipe, chosen, held_to_avx2
from tests.bench.peers.worker import Worker

_SIZES = {
    "vocab_size": 37,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
}
ENGINE = """
import os, sys, time
sys.path.insert(0, {workers!r})
from serving import Decoded, serve

class Engine:
    version = "7"
    def prefill(self, prompt):
        print("an engine talks")
        os.write(1, b"and its native code, too")
        return 0.5
    def decode(self, prompts, new_tokens):
        if new_tokens == 0:
            raise ValueError("no tokens")
        if new_tokens == 1:
            print("it breaks", file=sys.stderr, flush=True)
            os._exit(3)
        if new_tokens == 2:
            time.sleep(60)
        return Decoded(2.0, 7 * len(prompts), [[p[0]] * new_tokens for p in prompts])

serve(lambda request: Engine())
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    script = tmp_path / "engine.py"
    script.write_text(ENGINE.format(workers=str(WORKERS)), encoding="utf-8")
    with Worker(Path(sys.executable), script, tmp_path / "engine.log") as running:
        assert running.ask(60, task="open") == {"version": "7"}
        yield running


def test_a_worker_answers_whatever_its_engine_prints(worker: Worker) -> None:
    assert worker.ask(60, task="prefill", prompt=[1, 2]) == {"seconds": 0.5}
    answer = worker.ask(60, task="decode", prompts=[[4], [5]], new_tokens=3)
    assert answer == {"seconds": 2.0, "tokens": 14, "ids": [[4, 4, 4], [5, 5, 5]]}


def test_a_worker_is_still_while_it_is_not_asked(worker: Worker) -> None:
    stat = Path(f"/proc/{worker.pid}/stat")

    worker.ask(60, task="prefill", prompt=[1])
    # The signal may take a moment; without it this ends by the test's time limit.
    while stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("new_tokens", "seconds", "said"),
    [(0, 60, "ValueError: no tokens"), (1, 60, "ended with 3.*it breaks"), (2, 0.5, "ended with")],
)
def test_a_worker_that_fails_dies_or_hangs_says_so(
    worker: Worker, new_tokens: int, seconds: float, said: str
) -> None:
    with pytest.raises(LeftOutError, match=said):
        worker.ask(seconds, task="decode", prompts=[[1]], new_tokens=new_tokens)


class Scripted:
    """Takes so many seconds for everything; records who was asked for what."""

    def __init__(self, name: str, seconds: float, order: list[tuple[str, str, int]]) -> None:
        self._name, self._seconds, self._order = name, seconds, order
        self.prompts: list[list[int]] = []

    def ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        prompts = request.get("prompts", [])
        self.prompts += prompts or [request["prompt"]]
        self._order.append((self._name, request["task"], len(prompts)))
        if self._seconds == 0:
            raise LeftOutError("it broke")
        if request["task"] == "prefill":
            return {"seconds": self._seconds}
        return {"seconds": self._seconds, "tokens": 10, "ids": [[p[0], 0] for p in prompts]}


def test_each_piece_of_work_is_asked_of_all_before_the_next() -> None:
    order: list[tuple[str, str, int]] = []
    workers = {name: Scripted(name, seconds, order) for name, seconds in (("a", 2), ("b", 4))}
    measured = measure(workers, Plan(repetitions=2, batch=3), 97, lambda *_: None)

    assert [work for _, *work in order[::2]] == [work for _, *work in order[1::2]]
    assert [work for _, *work in order[:6:2]] == [["prefill", 0], ["decode", 1], ["decode", 3]]
    assert [name for name, *_ in order[::6]] == ["b", "a", "b"]  # who is first rotates
    assert measured["a"].medians() == {"prefill": 256.0, "decode_1": 5.0, "decode_batch": 5.0}
    assert len(measured["a"].rates["prefill"]) == 2  # the first time warms up
    assert measured["a"].first_ids == measured["b"].first_ids
    assert len(measured["a"].first_ids) == 1 + 3


def test_no_prompt_comes_twice() -> None:
    worker = Scripted("a", 1, [])
    measure({"a": worker}, Plan(repetitions=4, batch=3), 97, lambda *_: None)

    assert len(worker.prompts) == 5 * (1 + 1 + 3)
    assert len({tuple(prompt) for prompt in worker.prompts}) == len(worker.prompts)


def test_an_engine_that_breaks_is_left_out_by_name() -> None:
    order: list[tuple[str, str, int]] = []
    left_out: dict[str, str] = {}
    workers = {name: Scripted(name, seconds, order) for name, seconds in (("a", 1), ("b", 0))}
    measured = measure(workers, Plan(repetitions=1), 97, left_out.__setitem__)

    assert list(measured) == ["a"]
    assert left_out == {"b": "it broke"}
    assert [name for name, *_ in order].count("b") == 1


def test_a_median_stands_between() -> None:
    measured = Measured({"prefill": [1.0, 100.0, 3.0]})

    assert measured.medians() == {"prefill": 3.0}


def test_names_choose_engines_and_their_weights() -> None:
    assert [it.name for it in chosen([])] == ["llama.cpp:Q8_0", "llama.cpp:Q4_0", "dashinfer:fp32"]
    assert [it.name for it in chosen(["llama.cpp:Q4_0", "openvino"])] == [
        "llama.cpp:Q4_0",
        "openvino:int8",
    ]
    assert {it.recipe for it in chosen(["all"])} == set(RECIPES)
    with pytest.raises(ValueError, match="llama.cpq is unknown; one of all, .*llama.cpp:Q4_0"):
        chosen(["llama.cpq"])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_has_its_worker(recipe: Recipe) -> None:
    assert (WORKERS / recipe.worker).is_file()


def test_what_cannot_be_installed_is_left_out_with_the_reason(tmp_path: Path) -> None:
    recipe = Recipe("nobody", "nobody.py", ("fp32",), ("nothing",))

    with pytest.raises(LeftOutError, match="no-such-python cannot be run"):
        installed(recipe, tmp_path, str(tmp_path / "no-such-python"), 1)
    with pytest.raises(LeftOutError, match=r"not installed: .*install\.log"):
        installed(recipe, tmp_path, "/bin/ls", 1)  # as little a Python as any program


def test_an_engine_is_held_to_avx2_by_its_build_or_by_its_variables() -> None:
    recipes = {recipe.name: recipe for recipe in RECIPES}

    built = held_to_avx2(recipes["llama.cpp"])
    told = held_to_avx2(OURS)

    assert built is not None
    assert built.name != "llama.cpp"  # an environment of its own
    assert "-DGGML_NATIVE=OFF" in dict(built.environment)["CMAKE_ARGS"]
    assert told is not None
    assert dict(told.running) == {"JIT_KERNELS_ISA": "avx2"}
    assert held_to_avx2(recipes["onnxruntime-genai"]) is None


def test_a_worker_runs_with_the_variables_of_its_recipe(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    told = ENGINE.replace('version = "7"', 'version = os.environ["HELD_TO"]')
    script.write_text(told.format(workers=str(WORKERS)), encoding="utf-8")
    python, log = Path(sys.executable), tmp_path / "engine.log"

    with Worker(python, script, log, {"HELD_TO": "avx2"}) as running:
        assert running.ask(60, task="open") == {"version": "avx2"}


def test_a_checkpoint_for_other_engines_names_its_type_and_heads() -> None:
    config = {"architectures": ["LlamaForCausalLM"], **_SIZES, "rope_parameters": {"rope_theta": 7}}

    spelled = _for_others(config)

    assert (spelled["model_type"], spelled["head_dim"]) == ("llama", 16)
    assert spelled["rope_theta"] == 7
