"""A profile as a file: its name says in which form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from dashinfer_lab.config import Language, expanded
from dashinfer_lab.errors import ConfigError

if TYPE_CHECKING:
    from dashinfer_lab.profiling.op_profile import OpProfile

__all__ = ["require_savable", "save", "save_trace"]

_SUFFIXES = (".trace.json", ".json", ".html", ".png", ".txt")


def save(profile: OpProfile, path: str | Path, lang: Language | None = None) -> Path:
    """Write `profile` to `path` in the form its suffix names. Raises `ConfigError`, `OSError`."""
    target = require_savable(path)
    suffix = _suffix(target)
    if suffix == ".trace.json":
        save_trace(profile, target)
    elif suffix == ".json":
        target.write_text(json.dumps(profile.as_dict(), indent=1), encoding="utf-8")
    elif suffix == ".html":
        from dashinfer_lab.profiling.html_page import page

        target.write_text(page(profile, lang), encoding="utf-8")
    elif suffix == ".png":
        target.write_bytes(profile.plot(lang=lang).png)
    else:
        target.write_text(profile.report(lang) + "\n", encoding="utf-8")
    return target


def save_trace(profile: OpProfile, path: str | Path) -> Path:
    """Write the Chrome trace to `path`, whatever its name."""
    target = expanded(path)
    target.write_text(json.dumps(profile.trace()), encoding="utf-8")
    return target


def require_savable(path: str | Path) -> Path:
    """`path`, if a profile can be written there in a form its name says; else `ConfigError`."""
    target = expanded(path)
    if not _suffix(target):
        raise ConfigError(
            f"{str(path)!r:.200} does not say in which form to save a profile: end it with one of "
            f"{', '.join(_SUFFIXES)}"
        )
    if not target.parent.is_dir():
        raise ConfigError(f"{str(target.parent)!r:.200} is not a directory: make it first")
    if _suffix(target) == ".png":
        from dashinfer_lab.profiling.picture import require_matplotlib

        require_matplotlib()
    return target


def _suffix(path: Path) -> str:
    return next((suffix for suffix in _SUFFIXES if path.name.endswith(suffix)), "")
