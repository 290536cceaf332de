"""A converted model on disk, opened without copying it; imports nothing of ONNX."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ExpertConfig, ModelConfig, RopeConfig
from dashinfer_lab.convert.container import ContainerIndex, read_index
from dashinfer_lab.convert.staging import is_staging
from dashinfer_lab.errors import ArtifactError, CheckpointError
from dashinfer_lab.graph import StoredTensor
from dashinfer_lab.hub.ditensors import is_ditensors
from dashinfer_lab.hub.files import confined

__all__ = [
    "FORMAT_VERSION",
    "GRAPH_FILE",
    "WEIGHTS_FILE",
    "Artifact",
    "config_to_json",
    "is_artifact",
]

FORMAT_VERSION: Final = (1, 4)
"""1.1: scaled rotary.  1.2: weights of 4 bits.  1.3: windows, soft caps, ALiBi, LogN, experts.
1.4: LongRoPE."""

GRAPH_FILE = "model.dimodel"
WEIGHTS_FILE = "model.ditensors"

_MAX_GRAPH_BYTES: Final = 256 << 20  # a graph of 100 layers has one megabyte
_HUGE_PAGE: Final = 2 << 20
_MADV_POPULATE_READ: Final = 22  # Linux 5.14; Python's mmap has no name for it

# bfloat16 is read as its bits: NumPy has no such type.
_DTYPES: Final = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8}

# The types of a configuration's values, by how they are declared.
_KINDS: Final[Mapping[str, type[Any] | tuple[type[Any], ...]]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
}

_METADATA: Final = (
    "format_version",
    "model_type",
    "scheme",
    "group_size",
    "source",
    "revision",
    "tool_version",
    "identity",
    "config",
    "initializers",
    "graph_sha256",
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Artifact:
    """A converted model: its graph file, its memory-mapped tensors and what they came from.

    `metadata` holds format_version, model_type, scheme, group_size, source, revision,
    tool_version and identity, all as text.
    """

    directory: Path
    config: ModelConfig
    metadata: Mapping[str, str]
    tensors: Mapping[str, StoredTensor]
    _data: mmap.mmap

    @staticmethod
    def open(directory: Path) -> Artifact:
        """Open the artifact in `directory` after checking it against its own header.

        Raises ArtifactError for one that is damaged, incomplete or of a newer format, or whose
        files are links out of it.
        """
        weights = directory / WEIGHTS_FILE
        if is_staging(directory):
            raise ArtifactError(f"{directory} is left over from an unfinished conversion")
        if not is_artifact(directory):
            raise ArtifactError(f"{directory} does not hold {GRAPH_FILE} and {WEIGHTS_FILE}")
        _require_inside(directory)
        with _reading(weights), weights.open("rb") as file:  # once: it may be replaced meanwhile
            index = read_index(file, weights)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _check_metadata(weights, index.metadata)
        with _reading(directory / GRAPH_FILE) as path:
            _check_graph(path, index)
        _advise(data, mmap.MADV_HUGEPAGE)
        config = _config_from_json(weights, index.metadata["config"])
        return Artifact(directory, config, index.metadata, index.tensors, data)

    def __repr__(self) -> str:
        made_from = f"{self.metadata['source']} as {self.metadata['scheme']}"
        return f"Artifact({str(self.directory)!r}: {made_from}, {self.num_bytes / 1e6:.1f} MB)"

    @property
    def graph_path(self) -> Path:
        """The ONNX file."""
        return self.directory / GRAPH_FILE

    @property
    def weights_path(self) -> Path:
        """The safetensors container."""
        return self.directory / WEIGHTS_FILE

    @property
    def identity(self) -> str:
        """What the artifact was made from and how; equal identities are interchangeable."""
        return self.metadata["identity"]

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors, counted once."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())

    def prefault(self) -> None:
        """Map the whole file now, in huge pages where the system has them, not at the first token.

        Costs memory that the first token would take anyway; shared with other processes. From the
        end backwards: walking forwards the kernel reads ahead, in small pages that grow slowly.
        """
        for begin in reversed(range(0, len(self._data), _HUGE_PAGE)):
            length = min(_HUGE_PAGE, len(self._data) - begin)
            _advise(self._data, _MADV_POPULATE_READ, begin, length)

    def let_go(self) -> None:
        """Let the system take the file's pages from this process; they come back when read."""
        _advise(self._data, mmap.MADV_DONTNEED)

    def tensor(self, name: str) -> NDArray[Any]:
        """Return a read-only view of a tensor in the file, 64-byte aligned; bfloat16 as uint16.

        Raises ArtifactError for an unknown name.
        """
        stored = self.tensors.get(name)
        if stored is None:
            raise ArtifactError(f"{self.weights_path} holds no tensor {name!r}; re-convert")
        dtype = np.dtype(_DTYPES[stored.dtype])
        count = stored.num_bytes // dtype.itemsize
        flat = np.frombuffer(self._data, dtype, count, stored.offset)
        return flat.reshape(stored.shape)


def _advise(data: mmap.mmap, advice: int, begin: int = 0, length: int | None = None) -> None:
    """Tell the kernel how the file will be read; older ones may not know the advice."""
    with suppress(OSError):
        data.madvise(advice, begin, len(data) - begin if length is None else length)


def is_artifact(directory: Path) -> bool:
    """Say whether `directory` holds both files of a converted model.

    DashInfer's may have the same names: then it is a checkpoint. Raises ArtifactError where the
    system lets nobody look.
    """
    graph, weights = directory / GRAPH_FILE, directory / WEIGHTS_FILE
    with _reading(weights):
        return graph.is_file() and weights.is_file() and not is_ditensors(weights)


def _require_inside(directory: Path) -> None:
    try:
        for name in (GRAPH_FILE, WEIGHTS_FILE):
            confined(directory, name)
    except CheckpointError as error:
        raise ArtifactError(str(error)) from error


@contextmanager
def _reading(path: Path) -> Generator[Path]:
    """Name `path`, and what the system said, where it cannot be read."""
    try:
        yield path
    except OSError as error:
        reason = error.strerror or error
        raise ArtifactError(
            f"{path} cannot be read: {reason}; allow it, or re-convert the model"
        ) from error


def config_to_json(config: ModelConfig) -> str:
    """Spell `config` as the JSON that is kept in the metadata."""
    values = {name: value for name, value in asdict(config).items() if value is not None}
    return json.dumps(values, sort_keys=True)


def _config_from_json(path: Path, text: str) -> ModelConfig:
    try:
        values: dict[str, Any] = json.loads(text)
        rope = _rope(values.pop("rope"))
        local = values.pop("local_rope", None)
        local_rope = _rope(local) if local else None
        by_layer = {key: tuple(values.pop(key, ())) for key in ("windows", "local_layers")}
        experts = _experts(values.pop("experts", None))
        config = ModelConfig(
            rope=rope, local_rope=local_rope, experts=experts, **by_layer, **values
        )
        for record in (config, rope, *([local_rope] if local_rope else [])):
            _require_sound(record)
        for key, listed in by_layer.items():
            if listed and len(listed) != config.num_layers:
                raise ValueError(f"{len(listed)} {key} for {config.num_layers} layers")
        if config.num_heads % config.num_kv_heads:
            raise ValueError(f"{config.num_heads} heads for {config.num_kv_heads}")
        return config
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path}: its model configuration is unreadable ({error})") from error


def _rope(values: dict[str, Any]) -> RopeConfig:
    factors = {key: tuple(values.pop(key, ())) for key in ("short_factors", "long_factors")}
    return RopeConfig(**factors, **values)


def _experts(values: dict[str, Any] | None) -> ExpertConfig | None:
    if values is None:
        return None
    dense_layers = tuple(values.pop("dense_layers"))
    experts = ExpertConfig(dense_layers=dense_layers, **values)
    _require_sound(experts)
    if experts.per_token > experts.count:
        raise ValueError(f"{experts.per_token} of {experts.count} experts a token")
    return experts


def _require_sound(record: ModelConfig | RopeConfig | ExpertConfig) -> None:
    """Raise TypeError for a value of another type than declared, or a size below 1."""
    for field in fields(record):
        value, kind = getattr(record, field.name), _KINDS.get(str(field.type))
        if kind is None:
            continue
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            raise TypeError(f"{field.name} is {value!r:.80}")
        if isinstance(value, int) and kind is int and value < 1:
            raise TypeError(f"{field.name} is {value}")


def _check_metadata(path: Path, metadata: Mapping[str, str]) -> None:
    absent = [key for key in _METADATA if key not in metadata]
    if absent:
        raise ArtifactError(f"{path} lacks the metadata {absent}; re-convert the model")
    text = metadata["format_version"]
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(text) < 20):
        raise ArtifactError(f"{path} states no format version ({text!r:.80}); re-convert the model")
    version = (int(major), int(minor))
    if version[0] != FORMAT_VERSION[0] or version > FORMAT_VERSION:
        ours = ".".join(map(str, FORMAT_VERSION))
        raise ArtifactError(
            f"{path} has format {text}, this version reads {FORMAT_VERSION[0]}.0 to {ours}; "
            "re-convert the model, or upgrade if it was converted by a newer version"
        )


def _check_graph(path: Path, index: ContainerIndex) -> None:
    """Refuse a graph or a set of tensors other than those that were written together."""
    if path.stat().st_size > _MAX_GRAPH_BYTES:
        raise ArtifactError(f"{path} is larger than {_MAX_GRAPH_BYTES} bytes: not a graph of ours")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != index.metadata["graph_sha256"]:
        raise ArtifactError(
            f"{path} is not the graph that {WEIGHTS_FILE} was written with; re-convert the model"
        )
    names = index.metadata["initializers"].split()
    absent = sorted(set(names) - set(index.tensors))
    if absent:
        raise ArtifactError(f"{path} needs tensors that {WEIGHTS_FILE} lacks: {absent}; re-convert")
