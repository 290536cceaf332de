"""DashInfer's quantisation settings as a scheme of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dashinfer_lab.allspark.generation_config import require_known
from dashinfer_lab.errors import ConfigError
from dashinfer_lab.quantize import Scheme

__all__ = ["QuantizeConfig", "scheme_of"]

_FLOATS: Final = {"float32": "fp32", "bfloat16": "bf16"}
_OPTIONS: Final = frozenset(("SubChannel", "GroupSize"))
_GROUPS: Final = (64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class QuantizeConfig:
    """Weights in uint8, activations in float: InstantQuant's A16W8.

    extra_option: SubChannel, whether weights are grouped along k, and GroupSize, 64 to 512;
    else a whole column is one group.
    """

    activation_type: str = "bfloat16"
    weight_type: str = "uint8"
    extra_option: Mapping[str, Any] = field(default_factory=dict[str, Any])


def scheme_of(data_type: Any, quant: QuantizeConfig | None) -> Scheme:
    """The scheme for weights of `data_type`, quantised or not; ConfigError for what is not here."""
    if data_type not in tuple(_FLOATS):
        raise ConfigError(
            f"data_type={data_type!r:.80} is not possible: it is one of {', '.join(_FLOATS)}"
        )
    if quant is None:
        return Scheme.parse(_FLOATS[data_type])
    if quant.weight_type != "uint8":
        raise ConfigError(f"weight_type={quant.weight_type!r:.80} is not possible: it is uint8")
    if quant.activation_type not in tuple(_FLOATS):
        raise ConfigError(
            f"activation_type={quant.activation_type!r:.80} is not possible: activations stay "
            f"floats, {' or '.join(_FLOATS)}"
        )
    require_known("quant_config", quant.extra_option, _OPTIONS)
    grouped = quant.extra_option.get("SubChannel", False)
    if not isinstance(grouped, bool):
        raise ConfigError(f"SubChannel={grouped!r:.80} is not possible: it must be True or False")
    if not grouped:
        return Scheme.parse("a16w8:row")
    group = quant.extra_option.get("GroupSize", 64)
    if group not in _GROUPS:
        raise ConfigError(
            f"GroupSize={group!r:.80} is not possible: it is one of {', '.join(map(str, _GROUPS))}"
        )
    return Scheme.parse(f"a16w8:{group}")
