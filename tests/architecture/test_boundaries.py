from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.architecture.source_tree import (
    PACKAGES,
    ROOT,
    Source,
    all_imports,
    module_level_imports,
    sources,
)

READ_THE_ENVIRONMENT = {"jit_kernels/isa.py", "dashinfer_lab/config.py"}
KERNELS_NEED = {"numpy", "llvmlite", "jit_kernels"}
# The same list as ruff's, which also names the line while it is typed.
HEAVY = {
    *("fastapi", "gguf", "gradio", "huggingface_hub", "ipywidgets", "jinja2", "matplotlib"),
    *("modelscope", "onnx", "onnx_ir", "onnxruntime", "psutil", "rich", "sentencepiece"),
    *("tokenizers", "torch", "tqdm", "transformers", "typer", "uvicorn"),
}


def _is_command_line(source: Source) -> bool:
    return source.name.startswith("dashinfer_lab/cli/") or source.path.name == "__main__.py"


def _root(module: str) -> str:
    return module.partition(".")[0]


def test_the_environment_is_read_in_two_files_only() -> None:
    reading = {
        source.name
        for source in sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}
    }

    assert reading == READ_THE_ENVIRONMENT


def test_only_the_command_line_prints() -> None:
    printing = {
        source.name
        for source in sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    }

    assert {name for name in printing if not name.startswith("dashinfer_lab/cli/")} == set()


def test_heavy_packages_are_imported_where_used() -> None:
    eager = {
        f"{source.name}:{line} {name}"
        for source in sources(*PACKAGES)
        for line, name in module_level_imports(source)
        if _root(name) in HEAVY and not (_root(name) == "typer" and _is_command_line(source))
    }

    assert eager == set()


def test_kernels_need_numpy_and_llvmlite_only() -> None:
    others = {
        f"{source.name}:{line} {name}"
        for source in sources("jit_kernels")
        for line, name in all_imports(source)
        if _root(name) not in KERNELS_NEED | sys.stdlib_module_names
    }

    assert others == set()


def test_the_graph_never_imports_kernels() -> None:
    imports = [
        (source.name, line)
        for source in sources("dashinfer_lab/graph", "dashinfer_lab/models")
        for line, name in all_imports(source)
        if name.startswith("jit_kernels")
    ]

    assert imports == []


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    program = f"import sys, {package}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert set(done.stdout.split()) & HEAVY == set()
