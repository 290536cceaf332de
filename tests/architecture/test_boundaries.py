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
HEAVY = (
    "fastapi gguf gradio grpc huggingface_hub ipywidgets jinja2 matplotlib modelscope mpi4py onnx "
    "onnx_ir onnxruntime opentelemetry prometheus_client psutil pydantic rich sentencepiece "
    "tokenizers torch tqdm transformers typer uvicorn"
).split()

each = pytest.mark.parametrize("source", sources(*PACKAGES), ids=lambda s: s.name)


def is_command_line(source: Source) -> bool:
    return source.name.startswith("dashinfer_lab/cli/") or source.path.name == "__main__.py"


@each
def test_the_environment_is_read_in_two_files_only(source: Source) -> None:
    reads = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
    ]
    expected_some = source.name in READ_THE_ENVIRONMENT

    assert bool(reads) == expected_some


@each
def test_only_the_command_line_prints(source: Source) -> None:
    prints = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]

    assert is_command_line(source) or prints == []


@each
def test_heavy_packages_are_imported_where_used(source: Source) -> None:
    allowed = {"typer"} if is_command_line(source) else set[str]()
    heavy = [
        (line, name)
        for line, name in module_level_imports(source)
        if name.partition(".")[0] in set(HEAVY) - allowed
    ]

    assert heavy == []


@pytest.mark.parametrize("source", sources("jit_kernels"), ids=lambda s: s.name)
def test_kernels_need_numpy_and_llvmlite_only(source: Source) -> None:
    roots = {name.partition(".")[0] for _, name in all_imports(source)}

    assert roots - KERNELS_NEED - sys.stdlib_module_names == set()


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

    assert set(done.stdout.split()) & set(HEAVY) == set()
