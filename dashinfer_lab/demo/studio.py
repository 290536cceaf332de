"""Writes a ModelScope Studio: the page as a repository of its own, ready to be pushed.

A Studio starts `app.py` and shows what listens on port 7860 of all its addresses. The page uses
Gradio 6 only, which `requirements.txt` asks for.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from dashinfer_lab.errors import ConfigError

__all__ = ["write_studio"]

_APP: Final = '''\
"""The page of this Studio; everyone who opens it shares one engine."""

from dashinfer_lab.demo import DemoOptions, serve

MODEL = {model!r}

if __name__ == "__main__":
    serve(MODEL, options=DemoOptions(host="0.0.0.0", port=7860, language="zh")).wait()
'''

_README: Final = """\
---
domain:
- nlp
tags:
- llm
- cpu
- inference
- quantization
models:{models}
deployspec:
  entry_file: app.py
license: Apache License 2.0
---

# DashInfer Lab

在 CPU 上运行大语言模型：连续批处理，分页 KV 缓存，即时编译的向量算子。

A large language model on CPUs: continuous batching, a paged KV cache, kernels compiled at run time.

The model is `{model}`; name another in `app.py`.
"""


def write_studio(directory: Path, wheel: Path, model: str = "smollm2-135m") -> list[Path]:
    """Write the Studio's files into `directory` and return them: app, README, requirements, wheel.

    wheel: of this package.  Raises `ConfigError` where it is none, or where `directory` holds
    something else.
    """
    if wheel.suffix != ".whl" or not wheel.is_file():
        raise ConfigError(f"{wheel} is no wheel: build one, as `make studio` does")
    names = {"app.py", "README.md", "requirements.txt", wheel.name}
    present = {path.name for path in directory.iterdir()} if directory.is_dir() else set[str]()
    strangers = sorted(name for name in present - names if not name.endswith(".whl"))
    if strangers:
        raise ConfigError(
            f"{directory} holds {', '.join(strangers)[:200]}, which no Studio of ours has: name an "
            "empty directory"
        )
    directory.mkdir(parents=True, exist_ok=True)
    for former in directory.glob("*.whl"):
        if former.name != wheel.name:
            former.unlink()
    is_of_hub = "/" in model and not Path(model).exists()
    texts = {
        "app.py": _APP.format(model=model),
        "README.md": _README.format(model=model, models=f"\n- {model}" if is_of_hub else " []"),
        "requirements.txt": f"./{wheel.name}[demo,hub]\n",
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    if wheel.resolve().parent != directory.resolve():
        shutil.copyfile(wheel, directory / wheel.name)
    return [directory / name for name in (*texts, wheel.name)]
