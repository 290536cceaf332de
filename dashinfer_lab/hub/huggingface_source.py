"""Hugging Face through huggingface_hub; knows neither the cache nor what a file is for.

Endpoint, token and offline mode are the library's: HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from dashinfer_lab.errors import HubError, HubUnreachableError
from dashinfer_lab.hub.hub_client import WAY_OUT, Listing, headline, listed_file
from dashinfer_lab.hub.model_id import HubId

__all__ = ["HuggingFaceClient"]

_MISSING: Final = (
    "huggingface_hub is not installed: pip install huggingface_hub, or take the model from "
    f"ModelScope. {WAY_OUT}."
)


class HuggingFaceClient:
    """The two calls of `HubClient`, for Hugging Face."""

    compares_hashes = False

    def list_files(self, model: HubId) -> Listing:
        """List the files of `model`, and the commit its revision names now. Raises HubError."""
        try:
            from huggingface_hub import HfApi
        except ImportError as error:
            raise HubError(_MISSING) from error
        try:
            info = HfApi().model_info(model.path, revision=model.revision, files_metadata=True)
        except Exception as error:  # transport errors of whichever HTTP library it uses
            raise _translated(error, model) from error
        files = [
            listed_file(model, it.rfilename, it.size or 0, it.lfs.sha256 if it.lfs else None)
            for it in info.siblings or []
        ]
        return Listing(info.sha or model.revision, files)

    def download(
        self,
        model: HubId,
        commit: str,
        names: Sequence[str],
        directory: Path,
        advance: Callable[[int], None],
    ) -> None:
        """Fetch files by their exact names, one after the other; the library resumes.

        Raises HubError.
        """
        try:
            from huggingface_hub import hf_hub_download
            from tqdm import tqdm
        except ImportError as error:
            raise HubError(_MISSING) from error

        class Advance(tqdm):  # pyright: ignore[reportMissingTypeArgument]  # no class getitem
            """The library reports to a bar only: this one draws nothing."""

            def __init__(
                self, *_: Any, total: float | None = None, initial: int = 0, **__: Any
            ) -> None:
                super().__init__(total=total, initial=initial, disable=True)
                advance(initial)

            def update(self, n: float | None = 1) -> None:
                advance(int(n or 0))

        try:
            for name in names:
                hf_hub_download(
                    model.path, name, revision=commit, local_dir=directory, tqdm_class=Advance
                )
        except Exception as error:  # transport errors of whichever HTTP library it uses
            raise _translated(error, model) from error


def _translated(error: Exception, model: HubId) -> Exception:
    """Say what went wrong and the way out; an error of the local disk stays as it is."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError) or status in (401, 403):
        return HubError(
            f"{model} does not exist at {hub}, or needs permission. Check the spelling; accept its "
            f"terms on its page, then set HF_TOKEN to your access token. {WAY_OUT}."
        )
    if isinstance(error, errors.RepositoryNotFoundError | errors.RevisionNotFoundError):
        return HubError(
            f"{hub} has no model {model.path!r} with revision {model.revision!r}. Check the "
            "spelling; if it is private, set HF_TOKEN to your access token."
        )
    from_http = type(error).__module__.partition(".")[0] in {"httpx", "httpx2", "requests"}
    if from_http or isinstance(error, errors.HfHubHTTPError | ConnectionError | TimeoutError):
        return HubUnreachableError(_unreachable(model, hub, error))
    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return HubUnreachableError(_unreachable(model, hub, error))
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return HubError(
        f"{model} could not be fetched from {hub} ({type(error).__name__}: {headline(error)}). "
        f"{WAY_OUT}."
    )


def _unreachable(model: HubId, hub: str, error: BaseException) -> str:
    return (
        f"{model} is not complete in the cache, and {hub} does not answer "
        f"({type(error).__name__}). Check the network, or set HF_ENDPOINT to a mirror; "
        f"what was fetched is kept, and the next try goes on from there. {WAY_OUT}."
    )
