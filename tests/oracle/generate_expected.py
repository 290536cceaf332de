"""Write tests/expected/smollm2_135m.npz from transformers in fp32: run by hand, in torch's venv:
`python -m tests.oracle.generate_expected SmolLM2-135M-Instruct.Q4_1.gguf`.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tests.expected import EXPECTED_FILE
from tests.oracle.gguf_llama import read_gguf_llama, tokenizer_of, transformers_llama
from tests.oracle.witness import choices, greedy_tokens, whole_logits

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM

_NUM_GREEDY = 48
_NUM_SAMPLES = 16
_LONG_TOKENS = 500
_SEED = 7
# Twice what a correct engine may be off (1e-4 of the row's largest): then no rounding decides.
_LEAST_MARGIN = 2e-4

_CODE = '''\
def fibonacci(n: int) -> list[int]:
    """Return the first n Fibonacci numbers."""
    numbers = [0, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:n]


print(fibonacci(10))  # ['''

_PROMPTS = {
    "english": "The capital of France is",
    "digits": "3.14159 26535 89793 23846 26433 83279; 12 + 30 = 42; 1003 * 7 = 7021; 128 / 4 =",
    "unicode": (
        "今天天气很好，我们去公园散步。 Grüße aus München! Ωμέγα 🐼🌸👩‍👩‍👧 cafe\u0301 → 你好！"
    ),
    "code": _CODE,
}

_SENTENCES = (
    "In the {a} days of {n}, when the {b} {w} stood {c} beside the {v}, we walked {d} each day.",
    "The old {w} said to the {v}: 'What is {a} today may yet be {b} tomorrow.'",
    "No {w} was ever so {b}, and no {v} so {a}, as those which {n} had left us.",
    'She wrote {d} of the {w}; "the {v}," she began, "is {c}, but my heart is {a}."',
    "Between {n} and evening the {b} {v} lay {c}; {d} a {w} passed, and then another.",
    "They had counted {m} of the {a} {v}s, and {k} more were hidden behind the {w}.",
)
_WORDS = {
    "a": ("quiet", "golden", "bitter", "forgotten", "gentle", "restless"),
    "b": ("tall", "weathered", "cheerful", "narrow", "solemn"),
    "c": ("alone", "half asleep", "in shadow", "bright with rain"),
    "d": ("slowly", "without a word", "as if by habit", "often"),
    "n": ("summer", "the harvest", "my grandfather", "the first snow", "noon"),
    "v": ("river", "orchard", "harbour", "meadow", "chapel", "garden"),
    "w": ("miller", "lighthouse", "carpenter", "willow", "shepherd", "bridge"),
    "m": ("forty-two", "a dozen", "117", "nine hundred"),
    "k": ("3", "some sixty", "eleven", "1850"),
}


def _long_text(tokenizer: Tokenizer) -> str:
    """As many whole sentences as 500 tokens hold, drawn by a written-out generator."""
    state = _SEED

    def choose(options: tuple[str, ...]) -> str:
        nonlocal state
        state = (state * 1103515245 + 12345) % 2**31  # C's rand: the same on every platform
        return options[(state >> 16) % len(options)]

    text = ""
    while True:
        words = {slot: choose(options) for slot, options in _WORDS.items()}
        longer = f"{text} {choose(_SENTENCES).format(**words)}".strip()
        if len(tokenizer.encode(longer).ids) > _LONG_TOKENS:
            return text
        text = longer


def _fingerprint(
    model: LlamaForCausalLM, token_ids: list[int], ids: NDArray[np.int64]
) -> dict[str, NDArray[np.generic]]:
    greedy = greedy_tokens(model, token_ids, _NUM_GREEDY)
    rows = whole_logits(model, [*token_ids, *greedy[:-1]])
    logits = rows[: len(token_ids)]
    chosen, margin = choices(rows[len(token_ids) - 1 :])
    if chosen != greedy:
        raise SystemExit("tokens drawn one by one differ from those of one pass: not greedy")
    if margin < _LEAST_MARGIN:
        raise SystemExit(f"a greedy choice leads by {margin:.1e} only: change that prompt's text")
    return {
        "token_ids": np.array(token_ids, np.uint16),
        "sample_ids": ids.astype(np.uint16),
        "samples": np.take_along_axis(logits, ids, axis=1),
        "argmax": logits.argmax(axis=1).astype(np.uint16),
        "row_max": logits.max(axis=1),
        "row_max_abs": np.abs(logits).max(axis=1),
        "greedy": np.array(greedy, np.uint16),
        "greedy_margin": np.float64(margin),
    }


def write_arrays(path: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    """Write an npz whose bytes depend on the arrays alone."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path, help="the embedded model's file")
    parser.add_argument("--output", type=Path, default=EXPECTED_FILE)
    arguments = parser.parse_args()

    tokenizer = tokenizer_of(arguments.gguf)
    model = transformers_llama(read_gguf_llama(arguments.gguf))
    random = np.random.default_rng(_SEED)
    prompts = {**_PROMPTS, "long": _long_text(tokenizer)}
    arrays: dict[str, NDArray[np.generic]] = {"names": np.array(list(prompts))}
    for name, text in prompts.items():
        token_ids = tokenizer.encode(text).ids
        shape = (len(token_ids), _NUM_SAMPLES)
        sample_ids = random.integers(model.config.vocab_size, size=shape)
        arrays[f"{name}.text"] = np.array(text)
        for field, array in _fingerprint(model, token_ids, sample_ids).items():
            arrays[f"{name}.{field}"] = array
    write_arrays(arguments.output, arrays)


if __name__ == "__main__":
    main()
