"""dashinfer_lab beside other engines, in the same run, each in an environment of its own.

    python -m tests.bench.peers [llama.cpp dashinfer:fp32 ... | all] [--model smollm2-135m]

Without names: llama.cpp and DashInfer 1.3.0. Environments are made once below --folder, and models
converted there once; an engine that does not install, convert or run is left out by name. Decoding
is counted from the moment when every prompt has its first token. "agrees" is the share of prompts
whose first token is that of the first row: weights of fewer bits may differ, fp32 should not.
With --isa avx2 every engine does as on a processor without AVX-512, if it can be told to.
Nothing else should run: other programs move all figures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from dashinfer_lab.config import cache_root
from jit_kernels.isa import detect
from tests.bench.peers.checkpoint import Exported, exported
from tests.bench.peers.environments import LeftOutError, installed
from tests.bench.peers.measuring import FIGURES, Measured, Plan, measure
from tests.bench.peers.recipes import OURS, WORKERS, Variant, chosen, held_to_avx2
from tests.bench.peers.worker import Worker

_WEIGHTS = 'ours, separated by commas; "a16w8/int8" keeps keys and values in int8, as some peers do'


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  # a bench prints


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # workers end with us
    asked = _arguments()
    plan = Plan(repetitions=asked.repetitions, new_tokens=asked.new_tokens, batch=asked.batch)
    ours = [Variant(OURS, weights) for weights in asked.weights.split(",")]
    variants = [*ours, *chosen(asked.names)]
    if asked.isa == "avx2":
        variants = _held_to_avx2(variants)
    model = exported(asked.model, asked.folder)
    left_out: dict[str, str] = {}
    with ExitStack() as running:
        workers = {}
        for variant in variants:
            try:
                workers[variant.name] = _opened(running, variant, model, plan, asked)
            except LeftOutError as error:
                left_out[variant.name] = str(error)
                say(f"left out: {variant.name}: {error}")
        if asked.install_only:
            return
        measured = measure(workers, plan, model.vocab_size, left_out.__setitem__)
    report = _report(measured, plan, left_out, asked)
    if asked.json is not None:
        asked.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    _show(report)


def _held_to_avx2(variants: list[Variant]) -> list[Variant]:
    """Hold every engine to AVX2 that can be; say of the others that they use all there is."""
    held = [(variant, held_to_avx2(variant.recipe)) for variant in variants]
    for variant, recipe in held:
        if recipe is None:
            say(f"{variant.name} has no switch for AVX2: it uses all that this processor has")
    return [Variant(recipe or it.recipe, it.weights) for it, recipe in held]


def _opened(
    running: ExitStack, variant: Variant, model: Exported, plan: Plan, asked: argparse.Namespace
) -> Worker:
    """Install, convert and load `variant`; the worker is ended with `running`."""
    recipe = variant.recipe
    say(f"{variant.name}: installing where needed, converting where needed, loading ...")
    python = installed(recipe, asked.folder, asked.python, asked.install_minutes)
    folder = asked.folder / recipe.name
    log = folder / f"{variant.weights.replace('/', '-')}.log"
    script, variables = WORKERS / recipe.worker, dict(recipe.running)
    worker = running.enter_context(Worker(python, script, log, variables))
    opened = worker.ask(
        asked.install_minutes * 60,
        task="open",
        source=str(model.source),
        gguf=model.gguf and str(model.gguf),
        checkpoint=str(model.directory),
        fingerprint=model.fingerprint,
        folder=str(folder),
        weights=variant.weights,
        threads=asked.threads,
        max_batch=plan.batch,
        max_length=plan.max_length,
    )
    say(f"{variant.name}: {opened['version']}")
    return worker


def _report(
    measured: dict[str, Measured],
    plan: Plan,
    left_out: dict[str, str],
    asked: argparse.Namespace,
) -> dict[str, object]:
    first = next(iter(measured.values())).first_ids if measured else []
    rows = {
        name: {
            **each.medians(),
            "agrees": sum(a == b for a, b in zip(first, each.first_ids, strict=False)) / len(first),
            "rates": each.rates,
        }
        for name, each in measured.items()
    }
    isa = asked.isa or detect().name
    machine = {"isa": isa, "threads": asked.threads, "load": os.getloadavg()[0]}
    return {"plan": asdict(plan), "machine": machine, "measured": rows, "left_out": left_out}


def _show(report: dict[str, object]) -> None:
    plan, rows, left_out = report["plan"], report["measured"], report["left_out"]
    assert isinstance(plan, dict)
    assert isinstance(rows, dict)
    assert isinstance(left_out, dict)
    headings = (f"prefill {plan['prefill_tokens']}", "decode 1", f"decode {plan['batch']}")
    lines = [f"{'tokens/s':28}" + "".join(f"{it:>14}" for it in (*headings, "agrees"))]
    for name, row in rows.items():
        figures = "".join(f"{row[figure]:14.1f}" for figure in FIGURES)
        lines.append(f"{name:28}{figures}{row['agrees']:14.0%}")
    lines += [f"left out: {name}: {reason}" for name, reason in left_out.items()]
    print("\n".join(lines))  # noqa: T201  # a bench prints


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help='engines, "engine:weights", or "all"')
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="fp32,a16w8,a16w4", help=_WEIGHTS)
    parser.add_argument("--isa", choices=["avx2"], help="hold engines to AVX2 that have a switch")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=cache_root() / "peers")
    parser.add_argument("--python", default=sys.executable, help="makes the environments")
    parser.add_argument("--install-minutes", type=float, default=60)
    parser.add_argument("--install-only", action="store_true", help="install and convert alone")
    parser.add_argument("--json", type=Path, help="write every repetition there")
    asked = parser.parse_args()
    asked.folder = asked.folder.resolve()
    return asked


if __name__ == "__main__":
    main()
