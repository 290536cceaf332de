"""How each supported architecture's config.json differs from Llama's; knows no graph.

A line a family: its Hugging Face class, DashInfer's names for it, and the defaults and keys that
its own configuration class has. Source: transformers' configuration_<model_type>.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dashinfer_lab.errors import ConfigError

__all__ = [
    "FAMILIES",
    "ExpertDefaults",
    "Family",
    "add_family",
    "families",
    "family_of_architecture",
    "family_of_model_type",
]

Window = Literal["none", "always", "switch", "switch all", "switch even", "pattern"]


@dataclass(frozen=True, slots=True)
class ExpertDefaults:
    """A mixture of experts' sizes; None where the architecture has no such key."""

    count: int
    per_token: int
    size: int | None = None
    shared_size: int | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """What differs by architecture; sizes None are derived as Llama derives them."""

    model_type: str
    architecture: str
    aliases: tuple[str, ...] = ()
    """Names that DashInfer has for it."""
    also: tuple[str, ...] = ()
    """Other classes of the same architecture."""
    context_length: int = 2048
    num_kv_heads: int | None = None
    head_dim: int | None = None
    norm_eps: float = 1e-6
    bias_key: str | None = None
    """Key that gives attention its biases; None where the architecture settles them."""
    bias_default: bool = False
    mlp_bias_key: str | None = None
    window: Window = "none"
    """Whether sliding_window is no part of it, holds in all layers, has a switch (which gives it to
    layers from max_window_layers on, to all, or to even ones before max_window_layers), or holds in
    all but every `window_pattern`-th layer.
    """
    window_pattern: int | None = None
    default_window: int | None = None
    """Of a config.json without the key sliding_window; null there is no window."""
    experts: ExpertDefaults | None = None

    tied: bool = False
    """Whether head and embedding are one where config.json does not say."""
    activation: Literal["silu", "gelu"] = "silu"
    score_scalar: int | None = None
    """Default number whose root scores are divided by; None where it is the head's size."""
    softcaps: tuple[float | None, float | None] = (None, None)
    """Default bounds of scores and of logits, read where there is a `score_scalar`."""
    theta: float = 10000.0
    """Base of the rotary embedding where config.json does not say."""
    local_theta: float | None = None
    """That of the layers with a window, if they have another."""
    original_length: int | None = None
    """Default length before scaling; None where it is the context's."""
    partial_rotary: float | None = None
    """Default share of a head that turns; None where the whole head always does."""
    interleaved: bool = False
    """Whether the pairs that turn lie side by side."""

    def is_called(self, model_type: object) -> bool:
        """Whether `model_type` is one of its names."""
        return model_type == self.model_type or model_type in self.aliases


FAMILIES = (
    Family(
        "llama", "LlamaForCausalLM", ("LLaMA_v2", "LLaMA_v3"),
        bias_key="attention_bias", mlp_bias_key="mlp_bias",
    ),
    Family(
        "qwen2", "Qwen2ForCausalLM", ("Qwen_v15", "Qwen_v20"),
        context_length=32768, window="switch", default_window=4096,
    ),
    Family(
        "mistral", "MistralForCausalLM",
        context_length=131072, num_kv_heads=8, window="always", default_window=4096,
    ),
    Family(
        "phi3", "Phi3ForCausalLM",
        context_length=4096, norm_eps=1e-5, window="always", original_length=4096,
        partial_rotary=1.0,
    ),
    Family("internlm2", "InternLM2ForCausalLM", bias_key="bias"),
    Family("olmo2", "Olmo2ForCausalLM", norm_eps=1e-5, bias_key="attention_bias"),
    Family(
        "qwen3", "Qwen3ForCausalLM", ("Qwen_v30",),
        context_length=32768, head_dim=128, bias_key="attention_bias", window="switch",
        default_window=4096,
    ),
    Family(
        "mixtral", "MixtralForCausalLM",
        context_length=131072, num_kv_heads=8, norm_eps=1e-5, theta=1e6, window="always",
        experts=ExpertDefaults(8, 2),
    ),
    Family(
        "qwen2_moe", "Qwen2MoeForCausalLM", ("Qwen_v20_MOE",),
        context_length=32768, num_kv_heads=16, bias_key="qkv_bias", bias_default=True,
        window="switch even", default_window=4096, experts=ExpertDefaults(60, 4, 1408, 5632),
    ),
    Family(
        "qwen3_moe", "Qwen3MoeForCausalLM",
        context_length=32768, num_kv_heads=4, bias_key="attention_bias", window="switch all",
        default_window=4096, experts=ExpertDefaults(128, 8, 768),
    ),
    *(
        Family(
            model_type, architecture,
            context_length=131072, num_kv_heads=2, head_dim=128, norm_eps=1.5625e-7,
            bias_key="attention_bias", bias_default=True, partial_rotary=0.5, interleaved=True,
        )
        for model_type, architecture in (("glm", "GlmForCausalLM"), ("glm4", "Glm4ForCausalLM"))
    ),
    Family(
        "gemma2", "Gemma2ForCausalLM",
        context_length=8192, num_kv_heads=4, head_dim=256, bias_key="attention_bias",
        window="pattern", window_pattern=2, default_window=4096, tied=True, activation="gelu",
        score_scalar=256, softcaps=(50.0, 30.0),
    ),
    Family(
        "gemma3_text", "Gemma3ForCausalLM",
        context_length=131072, num_kv_heads=4, head_dim=256, bias_key="attention_bias",
        window="pattern", window_pattern=6, default_window=4096, tied=True, activation="gelu",
        score_scalar=256, theta=1e6, local_theta=1e4,
    ),
    Family(
        "baichuan", "BaichuanForCausalLM", ("Baichuan", "Baichuan_v2"), ("BaiChuanForCausalLM",),
        context_length=4096,
    ),
    Family("qwen", "QWenLMHeadModel", ("Qwen_v10",)),
    Family(
        "chatglm", "ChatGLMModel", ("ChatGLM_v2", "ChatGLM_v3", "ChatGLM_v4"),
        ("ChatGLMForConditionalGeneration",),
        bias_key="attention_bias", partial_rotary=0.5, interleaved=True,
    ),
)  # fmt: skip


_added: dict[str, Family] = {}


def add_family(family: Family) -> None:
    """Let this process read checkpoints of `family`, in place of an added one of its `model_type`.

    Raises ConfigError where a name of it is one of a family that comes with the package.
    """
    names = {family.model_type, family.architecture, *family.aliases, *family.also}
    for known in FAMILIES:
        taken = names & {known.model_type, known.architecture, *known.aliases, *known.also}
        if taken:
            raise ConfigError(
                f"{min(taken)!r} is a name of {known.model_type!r}, which comes with the package: "
                "give the family that you add other names"
            )
    _added[family.model_type] = family


def families() -> tuple[Family, ...]:
    """Return those that come with the package, then those that were added."""
    return (*FAMILIES, *_added.values())


def family_of_architecture(name: str) -> Family | None:
    """Return the family of a class in `architectures`."""
    return next((each for each in families() if name in (each.architecture, *each.also)), None)


def family_of_model_type(name: object) -> Family | None:
    """Return the family of a `model_type`, in Hugging Face's or DashInfer's spelling."""
    return next((family for family in families() if family.is_called(name)), None)
