"""Settings read from the environment, and the architecture of a model; knows nothing of files.

The only module of the package that reads `os.environ`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from dashinfer_lab.errors import ConfigError

__all__ = [
    "ExpertConfig",
    "Language",
    "ModelConfig",
    "RopeConfig",
    "cache_root",
    "default_language",
    "embedded_override",
    "expanded",
    "notebook_proxy",
    "ntk_stage",
    "profile_from_start",
    "silence_gradio",
]

Language = Literal["en", "zh"]
"""Languages the command line speaks."""


_MODELSCOPE_WORKSPACE = Path("/mnt/workspace")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: base, share of the head that turns, and scaling.

    scaling: "none", "linear", "llama3", "yarn", "longrope", or "dynamic", which changes nothing
    within the context length.  factor, original_length: how far positions were stretched, and from
    how many.  attention_factor: multiplies cosine and sine.  short_factors, long_factors: what
    LongRoPE divides each pair's frequency by within original_length, and beyond it.  The others are
    named as in config.json.
    """

    theta: float = 10000.0
    partial_factor: float = 1.0
    interleaved: bool = False
    scaling: str = "none"
    factor: float = 1.0
    original_length: int = 1
    attention_factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """Mixture of experts: `count` of them in a layer, `per_token` of which a token meets.

    intermediate_size: of one.  shared_size: of the expert that every token meets, if there is one.
    renormalise: the weights of those a token meets are made to sum to 1.  dense_layers: layers
    that have an ordinary block instead.
    """

    count: int
    per_token: int
    intermediate_size: int
    shared_size: int | None = None
    renormalise: bool = True
    dense_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Architecture of a decoder, in the field's terms; sizes in elements."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    context_length: int
    rope: RopeConfig
    tie_word_embeddings: bool
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_scale: float | None = None
    """What scores are multiplied by; None is 1 / sqrt(head_dim)."""
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    alibi: bool = False
    """Whether scores fall with distance (Press et al. 2022), and no head turns."""
    unit_head: bool = False
    """Whether every row of the head has length 1."""
    logn: int | None = None
    """Length beyond which queries grow by the logarithm of their position to this base."""
    ntk_length: int | None = None
    """Prompt length beyond which the base of rotation grows with the prompt: see `ntk_stage`."""
    local_rope: RopeConfig | None = None
    """Rotary embedding of the layers that `local_layers` marks, where it is another."""
    local_layers: tuple[bool, ...] = ()
    windows: tuple[int | None, ...] = ()
    """Keys that rows of each layer see, the last ones; None is all. Empty: all, in every layer."""
    experts: ExpertConfig | None = None

    @property
    def num_rotary_stages(self) -> int:
        """How many bases of rotation prompts of different lengths have, 1 for most models."""
        return 1 + ntk_stage(self.context_length, self.ntk_length)

    @property
    def num_short_rows(self) -> int:
        """Positions that have LongRoPE's short angles beside the long ones; 0 for most models."""
        original = self.rope.original_length
        has_both = self.rope.scaling == "longrope" and original < self.context_length
        return original if has_both else 0

    @property
    def num_rotary_rows(self) -> int:
        """Rows of the rotary tables: every stage's positions, then the short ones."""
        return self.context_length * self.num_rotary_stages + self.num_short_rows

    def first_rotary_row(self, served_length: int) -> int:
        """Row of position 0 where so many positions are served."""
        return self.context_length if served_length <= self.num_short_rows else 0

    def rope_of(self, layer: int) -> RopeConfig:
        """Rotary embedding of that layer."""
        local = self.local_rope if self.local_layers and self.local_layers[layer] else None
        return local or self.rope

    def window(self, layer: int) -> int | None:
        """How many of the last keys a row of that layer sees; None is all of them."""
        return self.windows[layer] if self.windows else None


def ntk_stage(prompt_length: int, ntk_length: int | None) -> int:
    """How often a prompt doubled the length that rotation was trained for; 0 within it.

    Qwen's base then is multiplied by (2^(stage + 1) - 1)^(D / (D - 2)) (Bai et al. 2023, 2.3). It
    follows the prompt: an answer keeps the base that its prompt began with.
    """
    return 0 if ntk_length is None else (max(prompt_length - 1, 0) // ntk_length).bit_length()


def cache_root() -> Path:
    """Directory for models, conversions and compiled objects.

    `DASHINFER_LAB_CACHE`, else the persistent disk of a ModelScope notebook, else XDG's cache.
    """
    chosen = os.environ.get("DASHINFER_LAB_CACHE")
    if chosen:
        return expanded(chosen)
    if _MODELSCOPE_WORKSPACE.is_dir() and os.access(_MODELSCOPE_WORKSPACE, os.W_OK):
        return _MODELSCOPE_WORKSPACE / ".cache" / "dashinfer_lab"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else expanded("~/.cache")) / "dashinfer_lab"


def embedded_override() -> Path | None:
    """GGUF file that stands in for the embedded model (`DASHINFER_LAB_EMBEDDED`)."""
    chosen = os.environ.get("DASHINFER_LAB_EMBEDDED")
    return expanded(chosen) if chosen else None


def default_language() -> Language:
    """Language of the locale: Chinese where LC_ALL, LC_MESSAGES or LANG says so, in that order."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next(filter(None, map(os.environ.get, names)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def notebook_proxy(port: int) -> str | None:
    """Path or URL under which the notebook server around this process shows `port`, if any.

    A hub's prefix, VS Code's pattern, or the base of the Jupyter server that opened a terminal;
    all but VS Code need jupyter-server-proxy.
    """
    pattern = os.environ.get("VSCODE_PROXY_URI", "")
    if "{{port}}" in pattern and pattern.startswith(("/", "http")):
        return pattern.replace("{{port}}", str(port)).rstrip("/")
    server = os.environ.get("JUPYTER_SERVER_URL", "")
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX") or urlsplit(server).path
    return f"{prefix.rstrip('/')}/proxy/{port}" if prefix.startswith("/") else None


def silence_gradio() -> None:
    """Tell Gradio, before it is imported, to report nothing and to keep its files in our cache.

    By itself it takes a directory below /tmp that the first user of the machine then owns.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("GRADIO_TEMP_DIR", str(cache_root() / "gradio"))


def profile_from_start() -> bool:
    """Whether every step is profiled from the load on (`AS_PROFILE=ON`, DashInfer's name).

    Raises ConfigError.
    """
    chosen = os.environ.get("AS_PROFILE", "")
    if chosen.upper() not in ("ON", "OFF", ""):
        raise ConfigError(f"AS_PROFILE={chosen!r:.80} is not understood: set it to ON or OFF")
    return chosen.upper() == "ON"


def expanded(path: str | Path) -> Path:
    """`path` with "~" as the home directory. Raises ConfigError where that is not known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # no such user, or neither HOME nor an entry for this one
        raise ConfigError(
            f"the home directory in {str(path)!r:.200} is not known: give the whole path (that of "
            "the cache in DASHINFER_LAB_CACHE)"
        ) from error
