"""ModelScope through its own client; knows neither the cache nor what a file is for.

Endpoint and token are the client's: MODELSCOPE_ENDPOINT, MODELSCOPE_API_TOKEN, its login.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from dashinfer_lab.errors import HubError, HubUnreachableError
from dashinfer_lab.hub.hub_client import WAY_OUT, Listing, headline, listed_file
from dashinfer_lab.hub.model_id import HubId

if TYPE_CHECKING:
    from modelscope_hub import HubConfig

__all__ = ["ModelScopeClient"]

_TRANSFER: Final = "modelscope_hub._download"
_MISSING: Final = (
    "ModelScope's client is not installed: pip install modelscope. "
    f"A name of Hugging Face begins with hf: and needs none. {WAY_OUT}."
)


class ModelScopeClient:
    """The two calls of `HubClient`, for ModelScope."""

    compares_hashes = True

    def list_files(self, model: HubId) -> Listing:
        """List the files of `model`; its revision is what fetches them. Raises HubError."""
        try:
            from modelscope_hub import HubApi, HubConfig
        except ImportError as error:
            raise HubError(_MISSING) from error
        config = HubConfig()
        try:
            with _quiet:
                entries = HubApi(config=config).list_repo_files(
                    model.path, "model", revision=model.revision
                )
                files = [(it.path, it.size, it.sha256) for it in entries if not it.is_dir]
        except Exception as error:  # the client lets errors of requests and of parsing through
            raise _translated(error, model, config) from error
        return Listing(model.revision, [listed_file(model, *it) for it in files])

    def download(
        self,
        model: HubId,
        commit: str,
        names: Sequence[str],
        directory: Path,
        advance: Callable[[int], None],
    ) -> None:
        """Fetch files by their exact names; the client resumes, and compares each sha256.

        Raises HubError.
        """
        try:
            from modelscope import snapshot_download
            from modelscope_hub import HubConfig, ProgressCallback
        except ImportError as error:
            raise HubError(_MISSING) from error

        class Advance(ProgressCallback):
            def update(self, size: int) -> None:
                advance(size)

        config = HubConfig()
        try:
            with _quiet:
                snapshot_download(
                    model.path,
                    revision=commit,
                    cache_dir=str(directory),  # for its locks
                    local_dir=str(directory),
                    allow_patterns=list(names),
                    progress_callbacks=[Advance],
                    endpoint=config.endpoint,
                    token=config.token or "",
                )
        except Exception as error:  # the client lets errors of requests and of parsing through
            raise _translated(error, model, config) from error


class _Quiet:
    """Keep the client's own bars and log lines off the terminal: we report what it does.

    It draws bars whatever callbacks it is given, and logs each error that it also raises. Blocks
    may overlap in several threads; the first one silences, the last one restores.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._depth = 0
        self._levels: dict[str, int] = {}
        self._bar: Any = None

    def __enter__(self) -> None:
        from tqdm.auto import tqdm

        with self._lock:
            self._depth += 1
            if self._depth > 1:
                return
            for name in ("modelscope", "modelscope_hub"):
                self._levels[name] = logging.getLogger(name).level
                logging.getLogger(name).setLevel(logging.CRITICAL)
            transfer: Any = sys.modules.get(_TRANSFER)
            self._bar = getattr(transfer, "tqdm", None)
            if self._bar is not None:
                transfer.tqdm = partial(tqdm, disable=True)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            for name, level in self._levels.items():
                logging.getLogger(name).setLevel(level)
            if self._bar is not None:
                sys.modules[_TRANSFER].__dict__["tqdm"] = self._bar


_quiet: Final = _Quiet()


def _translated(error: Exception, model: HubId, config: HubConfig) -> Exception:
    """Say what went wrong and the way out; an error of the local disk stays as it is."""
    from modelscope_hub import errors

    found = list(_causes(error))
    hub = config.endpoint

    def any_of(*kinds: type[BaseException]) -> BaseException | None:
        return next((it for it in found if isinstance(it, kinds)), None)

    if any_of(errors.AuthenticationError, errors.PermissionDeniedError):
        state = "the token in use does not open it" if config.token else "no token is set"
        return HubError(
            f"{model} needs permission at {hub}, and {state}. Accept its terms on its page, then "
            f"set MODELSCOPE_API_TOKEN to your access token. {WAY_OUT}."
        )
    if any_of(errors.NotExistError):
        return HubError(
            f"{hub} has no model {model.path!r} with revision {model.revision!r}. Check the "
            "spelling; if it is private, set MODELSCOPE_API_TOKEN to your access token."
        )
    if wrong := any_of(errors.FileIntegrityError):
        return HubError(
            f"{model}: what {hub} sent is not what it lists, also when asked again "
            f"({headline(wrong)}). Nothing of it was kept; try later, or another revision."
        )
    if unreachable := any_of(
        ConnectionError, TimeoutError, errors.ServerError, errors.RateLimitError
    ):
        return HubUnreachableError(_unreachable(model, hub, unreachable))
    if any(isinstance(it, OSError) and it.errno is not None for it in found):
        return next(it for it in found if isinstance(it, OSError) and it.errno is not None)
    if any(type(it).__module__.partition(".")[0] in {"requests", "urllib3"} for it in found):
        return HubUnreachableError(_unreachable(model, hub, error))
    return HubError(
        f"{model} could not be fetched from {hub} ({type(error).__name__}: {headline(error)}). "
        f"Is MODELSCOPE_ENDPOINT a ModelScope hub? {WAY_OUT}."
    )


def _unreachable(model: HubId, hub: str | None, error: BaseException) -> str:
    return (
        f"{model} is not complete in the cache, and {hub} does not answer "
        f"({type(error).__name__}). Check the network, or MODELSCOPE_ENDPOINT; "
        f"what was fetched is kept, and the next try goes on from there. {WAY_OUT}."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it was raised from, and the errors of single files."""
    seen: list[BaseException] = [error]
    for it in seen:
        yield it
        below = [it.__cause__, *getattr(it, "failed_files", {}).values()]
        seen.extend(each for each in below if each is not None and each not in seen)
