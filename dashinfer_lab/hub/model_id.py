"""Names of models on a hub, and where in the cache each one lies; reaches no network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from dashinfer_lab.config import cache_root

__all__ = ["HubId", "parse_hub_id"]

_PREFIX: Final = "hf:"
_PART: Final = r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,95}"
_ID: Final = re.compile(
    rf"(hf:)?({_PART})/({_PART})(?:@([A-Za-z0-9][\w.\-/+]{{0,127}}))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class HubId:
    """A model of a hub at a revision: a branch, a tag or a commit."""

    hub: Literal["modelscope", "huggingface"]
    path: str
    """`owner/name`."""
    revision: str

    def __str__(self) -> str:
        prefix = _PREFIX if self.hub == "huggingface" else ""
        default = _DEFAULT_REVISIONS[self.hub]
        suffix = "" if self.revision == default else f"@{self.revision}"
        return f"{prefix}{self.path}{suffix}"

    @property
    def directory(self) -> Path:
        """Where the complete snapshot lies in the cache, in the layout both hubs' clients use."""
        folder = self.path.replace("/", "--")
        if self.hub == "huggingface":
            folder = f"models--{folder}"
        return cache_root() / "models" / folder / "snapshots" / quote(self.revision, safe="+")


_DEFAULT_REVISIONS: Final = {"modelscope": "master", "huggingface": "main"}


def parse_hub_id(text: str) -> HubId | None:
    """Read `owner/name[@revision]` of ModelScope or `hf:owner/name[@revision]`; else None."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    prefix, owner, name, revision = match.groups()
    hub: Literal["modelscope", "huggingface"] = "huggingface" if prefix else "modelscope"
    return HubId(hub, f"{owner}/{name}", revision or _DEFAULT_REVISIONS[hub])
