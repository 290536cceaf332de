"""What a hub's client offers, and which of a repository's files make a model; reaches no network.

A repository's list of files is not trusted: names are plain, sizes are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from dashinfer_lab.errors import HubError
from dashinfer_lab.hub.model_id import HubId

__all__ = ["WAY_OUT", "HubClient", "HubFile", "Listing", "headline", "listed_file", "model_files"]

WAY_OUT: Final = "The embedded model needs no hub: smollm2-135m"

_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-]{0,199}")
_DESCRIPTIONS: Final = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab"
    r"|chat_template)\.json|merges\.txt|chat_template\.jinja|[\w.\-]+\.(tiktoken|model)"
    r"|README\.md|LICEN[CS]E[\w.\-]*",
    re.ASCII,
)
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_SIZE_LIMIT: Final = 1 << 44


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository as its hub lists it; `sha256` where the hub states it."""

    name: str
    num_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository's files, and the revision by which exactly these can be fetched."""

    commit: str
    files: Sequence[HubFile]


class HubClient(Protocol):
    """A hub's own client library behind the two calls that a fetch needs."""

    compares_hashes: bool
    """Whether it holds what it fetches against the hash that the hub states."""

    def list_files(self, model: HubId) -> Listing:
        """List the files of `model`.

        Raises HubUnreachableError where there is no network, HubError where the hub refuses.
        """
        ...

    def download(
        self,
        model: HubId,
        commit: str,
        names: Sequence[str],
        directory: Path,
        advance: Callable[[int], None],
    ) -> None:
        """Fetch files into `directory`, resuming those that lie there in part.

        `advance` is told bytes as they come, from any thread. Raises as `list_files`.
        """
        ...


def listed_file(model: HubId, name: object, num_bytes: object, sha256: object) -> HubFile:
    """Return a file as a hub lists it. Raises HubError for what is no name, size or hash."""
    is_file = isinstance(name, str) and isinstance(num_bytes, int)
    if not is_file or not isinstance(sha256 or "", str):
        raise HubError(
            f"{model} lists the file {name!r:.100} with {num_bytes!r:.100} bytes and the hash "
            f"{sha256!r:.100}: refused"
        )
    return HubFile(str(name), int(str(num_bytes)), str(sha256) if sha256 else None)


def headline(error: BaseException) -> str:
    """Return the first line of `error`, short; a URL's query may hold what is secret."""
    lines = str(error).strip().splitlines()
    return lines[0].partition("?")[0][:200] if lines else type(error).__name__


def model_files(model: HubId, files: Sequence[HubFile]) -> list[HubFile]:
    """Choose config, tokenizer, licence and weights among a repository's top-level files.

    Weights are safetensors, or the one GGUF file of a repository without them. Raises HubError
    for a repository without either, and for names and sizes that no honest hub lists.
    """
    top = [file for file in files if "/" not in file.name or _is_suspect(file.name)]
    weights = _weights(model, top)
    chosen = [file for file in top if _DESCRIPTIONS.fullmatch(file.name)]
    chosen += [file for file in top if file.name == _INDEX and weights[0].name != _SINGLE]
    chosen += weights
    for file in chosen:
        if not 0 <= file.num_bytes <= _SIZE_LIMIT:
            raise HubError(f"{model} lists {file.name!r} with {file.num_bytes} bytes: refused")
    if len({file.name for file in chosen}) != len(chosen):
        raise HubError(f"{model} lists a file twice: refused")
    return sorted(chosen, key=lambda file: (file.num_bytes, file.name))


def _weights(model: HubId, files: Sequence[HubFile]) -> list[HubFile]:
    """Files with the weights, none of them twice under another name."""
    suspect = next((file.name for file in files if _is_suspect(file.name)), None)
    if suspect is not None:
        raise HubError(
            f"{model} lists the file {suspect!r:.200}, a path outside its directory: refused. Do "
            "not use this model."
        )
    names = {file.name for file in files}
    found = [f for f in files if f.name.endswith(".safetensors") and _PLAIN_NAME.fullmatch(f.name)]
    if _INDEX not in names and _SINGLE in names:
        return [file for file in found if file.name == _SINGLE]
    shards = [f for f in found if not f.name.startswith("consolidated")] or found
    if shards:
        return shards
    packed = [f for f in files if f.name.endswith(".gguf") and _PLAIN_NAME.fullmatch(f.name)]
    if len(packed) == 1:
        return packed
    if packed:
        listed = ", ".join(sorted(file.name for file in packed)[:8])
        raise HubError(
            f"{model} holds {len(packed)} GGUF files ({listed}). Download the one you want and "
            "give its path."
        )
    raise HubError(f"{model} holds no safetensors file. {_instead(names)}")


def _instead(names: set[str]) -> str:
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    if pickles:
        return (
            f"{pickles[0]} is a pickle, which can run code when it is loaded: it is refused. Look "
            "for the model's safetensors version; if you trust this one, load it with transformers "
            "yourself and give LLM the model."
        )
    return f"It is no language model, or its weights lie in a subdirectory. {WAY_OUT}."


def _is_suspect(name: str) -> bool:
    """Whether a listed path would leave the directory it is joined to."""
    parts = name.replace("\\", "/").split("/")
    return name.startswith(("/", "~")) or "\0" in name or any(part == ".." for part in parts)
