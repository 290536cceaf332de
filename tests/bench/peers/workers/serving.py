"""The loop of a measuring process, in any engine's environment: standard library alone.

Asked on stdin, answered on the first stdout, a line of JSON each:
{"task": "open", ...}                                   -> {"version": text}
{"task": "prefill", "prompt": [ids]}                    -> {"seconds": s}
{"task": "decode", "prompts": [[ids], ...], "new_tokens": n} -> {"seconds": s, "tokens": t, "ids"}
`seconds` of a decode begin when every prompt has its first token, and `tokens` came in them; `ids`
are all new tokens of each prompt. What fails is answered with {"error": text}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Decoded(NamedTuple):
    """New tokens of every prompt; `tokens` of them came within `seconds`."""

    seconds: float
    tokens: int
    ids: list[list[int]]


class Engine(Protocol):
    """What an engine's worker offers: greedy, no token ends an answer."""

    version: str

    def prefill(self, prompt: list[int]) -> float:
        """Seconds until the prompt's first token."""
        ...

    def decode(self, prompts: list[list[int]], new_tokens: int) -> Decoded:
        """Answers of `new_tokens` to prompts of one length, computed together."""
        ...


def serve(open_engine: Callable[[dict[str, Any]], Engine]) -> None:
    """Answer requests until stdin ends; whatever an engine prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["task"] == "open":
                engine = open_engine(request)
                answer = {"version": engine.version}
            else:
                answer = _measured(engine, request)
        except BaseException as error:  # noqa: BLE001  # told to who asked
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)  # the protocol


def _measured(engine: Any, request: dict[str, Any]) -> dict[str, Any]:
    if request["task"] == "prefill":
        return {"seconds": engine.prefill(request["prompt"])}
    return engine.decode(request["prompts"], request["new_tokens"])._asdict()
