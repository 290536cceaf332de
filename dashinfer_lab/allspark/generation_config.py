"""DashInfer's generation config, read whole: each key means something or is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from dashinfer_lab.allspark._allspark import TooLongError
from dashinfer_lab.errors import ConfigError, RequestError
from dashinfer_lab.numbers import is_whole
from dashinfer_lab.sampling import SamplingParams

__all__ = ["GENERATION_KEYS", "ASGenerationConfigBuilder", "require_known", "sampling_params"]

_MAX_TOP_LOGPROBS: Final = 10

# Keys that mean the same as a field of `SamplingParams`.
_SAME: Final = (
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram_size",
    "seed",
    "stop_words_ids",
    "bad_words_ids",
)

# What is not here, with the values that ask for nothing of it.
_NEUTRAL: Final[Mapping[str, tuple[object, ...]]] = {
    "num_beams": (None, 1),
    "num_return_sequences": (None, 1),
    "length_penalty": (None, 1.0),
    "suppress_repetition_in_generation": (None, False),
    "enable_tensors_from_model_inference": (None, False),
    "lora_name": (None, ""),
    "mm_info": (None,),
    "response_format": (None,),
    "vocab": (None,),
    "vocab_type": (None,),
}

_OWN: Final = (
    "do_sample",
    "early_stopping",
    "eos_token_id",
    "logprobs",
    "max_length",
    "max_new_tokens",
    "min_length",
    "top_logprobs",
    "user_request_id",
    "uuid",
)

_LONGEST: Final = frozenset(("max_length", "max_new_tokens"))

GENERATION_KEYS: Final = frozenset((*_SAME, *_NEUTRAL, *_OWN))
"""Every key of a generation config."""


class ASGenerationConfigBuilder:
    """Collects a generation config; `build` returns it as a dict, checked.

    hf_gen_config: options to begin with, a mapping or a transformers GenerationConfig.
    max_length and min_length count prompt and output; max_new_tokens, transformers' name, is a
    max_length so many above the prompt's own. Of these two the one set last counts. eos_token_id:
    one id or several, in place of the model's own; -1 is the model's own. uuid names the request;
    user_request_id begins its name.
    """

    def __init__(
        self,
        hf_gen_config: Any = None,
        seed: int | None = None,
        eos_token_id: int | list[int] | None = None,
    ) -> None:
        self.dict_store: dict[str, Any] = _from_hf(hf_gen_config)
        given = {"seed": seed, "eos_token_id": eos_token_id}
        self.update({key: value for key, value in given.items() if value is not None})

    def update(self, update_fields: Mapping[str, Any]) -> ASGenerationConfigBuilder:
        """Set options; raises ConfigError for a name that is none."""
        require_known("the generation config", update_fields, GENERATION_KEYS)
        if not _LONGEST.isdisjoint(update_fields):
            for name in _LONGEST:
                self.dict_store.pop(name, None)
        self.dict_store.update(update_fields)
        return self

    def do_sample(self, flag: bool = True) -> ASGenerationConfigBuilder:
        """Draw at random, or always the likeliest token."""
        return self.update({"do_sample": flag})

    def early_stopping(self, flag: bool = True) -> ASGenerationConfigBuilder:
        """End at an end-of-sequence id, or go on past it."""
        return self.update({"early_stopping": flag})

    def max_length(self, length: int) -> ASGenerationConfigBuilder:
        """Most tokens of prompt and output together."""
        return self.update({"max_length": length})

    def log_probs(self, enable_logprobs: bool, top_logprobs: int) -> ASGenerationConfigBuilder:
        """Report log-probabilities, of so many likeliest tokens too."""
        return self.update({"logprobs": enable_logprobs, "top_logprobs": top_logprobs})

    def build(self) -> dict[str, Any]:
        """A copy of the options."""
        return dict(self.dict_store)

    def __repr__(self) -> str:
        return f"ASGenerationConfigBuilder({self.dict_store})"


def require_known(where: str, given: Any, known: frozenset[str]) -> None:
    """Raise ConfigError for what is no mapping, or keys that are not known, each by its name."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be a mapping of names to values, not {given!r:.80}")
    given = cast("Mapping[Any, Any]", given)
    unknown = sorted(str(key) for key in given if key not in known)
    if unknown:
        raise ConfigError(
            f"{where} has keys that mean nothing: {', '.join(unknown)}; remove them. "
            f"Known are {', '.join(sorted(known))}"
        )


def sampling_params(
    config: Mapping[str, Any], defaults: Mapping[str, Any], num_prompt_tokens: int, longest: int
) -> SamplingParams:
    """What a config means for a prompt of so many tokens, in sequences of at most `longest`.

    defaults: the model's own options, which the config overrides. Raises ConfigError for keys
    that mean nothing, RequestError for values that make no sense.
    """
    require_known("the generation config", config, GENERATION_KEYS)
    _refuse_absent(config)
    given = {key: value for key, value in config.items() if value is not None}
    options = {**defaults, **{name: given[name] for name in _SAME if name in given}}
    if not _flag(given, "do_sample", True):
        options["temperature"] = 0.0
    options |= _lengths(given, num_prompt_tokens, longest)
    options |= _ends(given)
    options |= _logprobs(given)
    # Ids are what is asked for: text is made by who has them.
    return SamplingParams(**options, detokenize=False)


def _lengths(
    given: Mapping[str, Any], num_prompt_tokens: int, longest: int
) -> dict[str, int | None]:
    total = longest
    if "max_length" in given:
        total = min(_count(given, "max_length"), longest)
    if "max_new_tokens" in given:
        total = min(num_prompt_tokens + _count(given, "max_new_tokens"), total)
    room = total - num_prompt_tokens
    if room < 1:
        raise TooLongError(
            f"a prompt of {num_prompt_tokens} tokens leaves no room for a new one in max_length "
            f"{total} (engine_max_length {longest}): shorten the prompt, or raise them"
        )
    fewest = _count(given, "min_length") - num_prompt_tokens if "min_length" in given else 0
    return {"max_tokens": room, "min_tokens": max(fewest, 0)}


def _ends(given: Mapping[str, Any]) -> dict[str, Any]:
    if not _flag(given, "early_stopping", True):
        return {"ignore_eos": True}
    ends = given.get("eos_token_id", -1)
    if not isinstance(ends, int | list | tuple):
        raise RequestError(
            f"eos_token_id={ends!r:.80} is not possible: give a token id, or a list of them"
        )
    if ends == -1:
        return {}
    ids = [ends] if isinstance(ends, int) else cast("list[int]", ends)
    return {"ignore_eos": True, "stop_token_ids": list(ids)}


def _logprobs(given: Mapping[str, Any]) -> dict[str, int]:
    count = _count(given, "top_logprobs") if "top_logprobs" in given else 0
    if count > _MAX_TOP_LOGPROBS:
        raise RequestError(f"top_logprobs={count} is not possible: at most {_MAX_TOP_LOGPROBS} are")
    return {"logprobs": count} if _flag(given, "logprobs", False) else {}


def _refuse_absent(config: Mapping[str, Any]) -> None:
    for name, neutral in _NEUTRAL.items():
        if name not in config:
            continue
        value = config[name]
        # Compared only where it is of a kind with a plain answer; an array's is an array.
        is_plain = value is None or isinstance(value, bool | int | float | str)
        if not is_plain or value not in neutral:
            raise ConfigError(
                f"{name}={value!r:.80} is not possible here: leave it out, or {neutral[-1]!r}"
            )


def _flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"{name}={value!r:.80} is not possible: it must be True or False")
    return value


def _count(given: Mapping[str, Any], name: str) -> int:
    value = given[name]
    if not is_whole(value) or value < 0:
        raise RequestError(f"{name}={value!r:.80} is not possible: it must be a whole number")
    return value


def _from_hf(given: Any) -> dict[str, Any]:
    """The options that a mapping or a transformers GenerationConfig states and that are known."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        stated = dict(cast("Mapping[str, Any]", given))
        require_known("the generation config", stated, GENERATION_KEYS)
        return stated
    convert: Callable[[], dict[str, Any]] | None = getattr(given, "to_diff_dict", None)
    if convert is None:
        raise ConfigError(
            f"hf_gen_config={given!r:.80} is not understood: give a mapping or a GenerationConfig"
        )
    # It has options of transformers' own loop beside those of sampling.
    stated = {key: value for key, value in convert().items() if key in GENERATION_KEYS}
    left_out = {"early_stopping"}
    if stated.get("max_new_tokens") is not None:  # which counts in transformers, where both are set
        left_out.add("max_length")
    return {key: value for key, value in stated.items() if key not in left_out}
