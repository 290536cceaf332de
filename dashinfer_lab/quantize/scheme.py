"""Which format each weight of a model is stored in; knows nothing of how the bytes are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, cast, get_args

from dashinfer_lab.errors import ConfigError

__all__ = [
    "GROUPED_BITS",
    "GROUP_SIZES",
    "SCHEMES",
    "GroupSize",
    "Scheme",
    "WeightFormat",
    "WeightRole",
]

WeightFormat = Literal["f32", "bf16", "u8", "u4"]
WeightRole = Literal["linear", "router", "embedding", "head", "tied", "norm", "bias", "table"]
GroupSize = Literal[32, 64, 128, 256, 512, "row"]
ActivationBits = Literal[8, 16]

GROUP_SIZES: tuple[GroupSize, ...] = get_args(GroupSize)
GROUPED_BITS: Mapping[str, int] = {"u8": 8, "u4": 4}
"""Bits of a weight in the formats that have a scale and a minimum a group."""

# Weights, group size, bits of activations. 4 bits lose an eighth less in groups of 32, and GGUF's
# blocks are theirs.
_GROUPED_SCHEMES: Mapping[str, tuple[WeightFormat, GroupSize, ActivationBits]] = {
    "a16w8": ("u8", 64, 16),
    "a16w4": ("u4", 32, 16),
    "a8w8": ("u8", 64, 8),
    "a8w4": ("u4", 32, 8),
}

SCHEMES = ("fp32", "bf16", *_GROUPED_SCHEMES)
"""Names of all schemes, without group sizes."""

# The logits feel the head more than any other weight, and a tied one is gathered from as well.
_HEAD_GROUP_SIZE: GroupSize = 64

_EXEMPT = "-"  # before each pattern of weights that stay in bfloat16

_SPELLINGS = (
    "fp32, bf16, a16w8, a16w4, a8w8, a8w4 or, with groups of G weights, a16w8:G and so on, "
    'G of 32, 64, 128, 256, 512 or "row"'
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A choice of formats for a whole model.

    `weights` and `group_size` hold for linear weights, `head` for the output projection and an
    embedding tied to it: u8 wherever linear weights are integers. Weights whose name matches a
    pattern of `exempt` (as in `fnmatch`) stay in bfloat16. `activation_bits` are those of the
    activations that meet linear weights of integers; the head's are always 16.
    """

    name: str
    weights: WeightFormat
    group_size: GroupSize = 64
    head: WeightFormat = "f32"
    exempt: tuple[str, ...] = ()
    activation_bits: ActivationBits = 16

    def __post_init__(self) -> None:
        if self.exempt and self.weights not in GROUPED_BITS:
            raise ConfigError(f"{self.name} rounds no weight that could be exempt: leave them out")
        for pattern in self.exempt:
            if not pattern or _EXEMPT in pattern:
                raise ConfigError(
                    f"pattern {pattern!r} of exempt weights: give one that is not empty and has a "
                    '"?" where a name has a "-"'
                )

    @staticmethod
    def parse(text: str | Scheme) -> Scheme:
        """Return the scheme spelled `text`, such as "a16w8", "a16w4" or "a16w8:128".

        Raises ConfigError for any other spelling.
        """
        if isinstance(text, Scheme):
            return text
        name, colon, group = str(text).partition(":")
        if name in ("fp32", "bf16") and not colon:
            weights: WeightFormat = "f32" if name == "fp32" else "bf16"
            return Scheme(name, weights, head=weights)
        if name in _GROUPED_SCHEMES and (not colon or group in map(str, GROUP_SIZES)):
            weights, usual, bits = _GROUPED_SCHEMES[name]
            size = cast("GroupSize", int(group) if group.isdigit() else group or usual)
            return Scheme(name, weights, size, head="u8", activation_bits=bits)
        raise ConfigError(f"weights scheme {text!r} is unknown; it is one of {_SPELLINGS}")

    @staticmethod
    def read(text: str) -> Scheme:
        """Return the scheme that `str` spelled, with what it exempts; ConfigError as `parse`."""
        spelled, *exempt = text.split(_EXEMPT)
        return replace(Scheme.parse(spelled), exempt=tuple(exempt))

    def format_of(self, weight: str, role: WeightRole) -> WeightFormat:
        """Return the format of the weight named `weight`; norms, biases and tables stay f32.

        A router, which is small and decides, is never stored in integers.
        """
        if role in ("norm", "bias", "table"):
            return "f32"
        if self.weights == "f32":
            return "f32"
        if role in ("embedding", "router") or any(
            fnmatchcase(weight, pattern) for pattern in self.exempt
        ):
            return "bf16"
        return self.weights if role == "linear" else self.head

    def group_size_of(self, role: WeightRole) -> GroupSize:
        """Return the group size of a weight of this role in u8 or u4."""
        return self.group_size if role == "linear" else _HEAD_GROUP_SIZE

    def __str__(self) -> str:
        """Spell the scheme: what `read` takes and, where nothing is exempt, `parse`."""
        text = f"{self.name}:{self.group_size}" if self.weights in GROUPED_BITS else self.name
        return _EXEMPT.join([text, *self.exempt])
