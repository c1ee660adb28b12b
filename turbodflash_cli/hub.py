"""Models from Hugging Face repositories: `-hf user/repo[:quant]`.

huggingface_hub does the talking and keeps the files in its own cache, where other programs find
them too. It is imported here only, and only when a repository was asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turbodflash_cli.store import Report, SourceFailed
from turbodflash_engine import BadUsage

DEFAULT_QUANT = "Q4_K_M"
_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(:(?P<quant>[\w.-]+))?")
_PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
_QUANT = re.compile(
    r"(?<![A-Z0-9])(I?Q\d\w*|TQ\d\w*|MXFP4\w*|B?F16|F32)(?![A-Z0-9])", re.IGNORECASE
)
_NO_MODEL = ("mmproj", "imatrix")
_DRAFTS = ("dspark-", "dflash-", "eagle3-")
_BESIDE = (*_DRAFTS, "mtp-")
"""Beginnings of the names of drafts that lie beside their model, the ones preferred first."""


class Hub:
    """A Hugging Face server and the local cache of what came from it.

    endpoint: HF_ENDPOINT if None, else the public one. token: HF_TOKEN or the saved login if None.
    cache: huggingface_hub's own if None. offline: only the cache is asked.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        cache: Path | None = None,
        offline: bool = False,
    ) -> None:
        self.endpoint = endpoint or os.environ.get("HF_ENDPOINT") or None
        self.token = token
        self.cache = cache
        self.offline = offline

    def model(self, spec: str, file: str | None, report: Report, *, draft: bool = False) -> Path:
        """The model of user/repo[:quant], or that exact `file` of the repository.

        Of a split model all parts are fetched, and the path of the first one comes back.
        draft: of a repository with a model and drafts for it, a draft is wanted.
        """
        repo, quant = parse_spec(spec)
        report(f"looking into {repo}", 0, 0)
        files = self.files(repo)
        if self.offline and not files:
            raise SourceFailed(
                f"no file of {repo} is on this machine, and --offline forbids fetching one.",
                hint="run it once without --offline, or pass a file with -m FILE.gguf",
            )
        wanted = drafts_among(files) if draft else models_among(files)
        chosen = _exactly(file, files, repo) if file else choose(wanted, quant, repo)
        paths = [self.file(repo, part, report) for part in parts_of(chosen, files, repo)]
        return paths[0]

    def files(self, repo: str) -> list[str]:
        """Names of the repository's model files; those in the cache when the server is away."""
        if self.offline:
            return self._cached_files(repo)
        from huggingface_hub import HfApi

        try:
            with _as_sentences(repo):
                info = HfApi(endpoint=self.endpoint, token=self.token).model_info(repo, timeout=20)
        except SourceFailed:
            if cached := self._cached_files(repo):
                return cached
            raise
        return _models(sibling.rfilename for sibling in info.siblings or ())

    def _cached_files(self, repo: str) -> list[str]:
        from huggingface_hub import scan_cache_dir
        from huggingface_hub.errors import CacheNotFound

        try:
            repos = scan_cache_dir(self.cache).repos
        except CacheNotFound:
            return []
        return _models(
            file.file_path.relative_to(revision.snapshot_path).as_posix()
            for cached in repos
            if cached.repo_id == repo and cached.repo_type == "model"
            for revision in cached.revisions
            if "main" in revision.refs
            for file in revision.files
        )

    def file(
        self,
        repo: str,
        file: str,
        report: Report,
        *,
        revision: str | None = None,
        into: Path | None = None,
    ) -> Path:
        """One file, from the cache or the server; `into` a plain folder instead of the cache."""
        from huggingface_hub import hf_hub_download

        with _as_sentences(repo):
            return Path(
                hf_hub_download(
                    repo,
                    file,
                    revision=revision,
                    cache_dir=self.cache,
                    local_dir=into,
                    token=self.token,
                    endpoint=self.endpoint,
                    local_files_only=self.offline,
                    tqdm_class=_reporting(report),
                )
            )


def parse_spec(spec: str) -> tuple[str, str | None]:
    """("user/repo", quant or None) of `user/repo[:quant]`."""
    match = _REPO.fullmatch(spec.strip())
    if not match:
        raise BadUsage(
            f"-hf takes user/repo or user/repo:quant, not {spec!r}.",
            hint=f"for example: -hf user/some-model-GGUF:{DEFAULT_QUANT}",
        )
    return match["repo"], match["quant"]


def choose(files: Sequence[str], quant: str | None, repo: str) -> str:
    """The file of that quantisation, whatever its case; without one Q4_K_M, else the first file.

    Of several that match, the one with the shortest name: no variant of it.
    """
    first_parts = [
        file for file in files if not (part := _PART.search(file)) or int(part["number"]) == 1
    ]
    if not first_parts:
        raise BadUsage(
            f"{repo} holds no GGUF file.", hint="look for a repository whose name ends in -GGUF."
        )
    wanted = re.compile(
        rf"(?<![A-Za-z0-9]){re.escape(quant or DEFAULT_QUANT)}(?![A-Za-z0-9_])", re.IGNORECASE
    )
    matching = [file for file in first_parts if wanted.search(file)]
    if matching:
        return min(matching, key=lambda file: (len(file), file))
    if quant is None:
        return first_parts[0]
    there = sorted({found[1] for file in first_parts if (found := _QUANT.search(file))})
    raise BadUsage(
        f"{repo} has no file of quantisation {quant!r}.",
        hint=f"there are: {', '.join(there or first_parts)}",
    )


def drafts_among(files: Sequence[str]) -> Sequence[str]:
    """The drafts of the best kind that lie beside a model; where none does, all files."""
    kinds = ([file for file in files if _name(file).startswith(kind)] for kind in _DRAFTS)
    return next(filter(None, kinds), files)


def models_among(files: Sequence[str]) -> Sequence[str]:
    """The files that are no drafts beside a model; where all are, all of them."""
    return [file for file in files if not _name(file).startswith(_BESIDE)] or files


def parts_of(file: str, files: Sequence[str], repo: str) -> list[str]:
    """All parts of a split model in order, or just the file."""
    part = _PART.search(file)
    if not part:
        return [file]
    stem, count = file[: part.start()], int(part["count"])
    parts = [f"{stem}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    missing = [name for name in parts if name not in files]
    if missing:
        raise SourceFailed(
            f"{repo} lacks {missing[0]}, a part of a model of {count}.",
            hint="choose another quantisation, or another repository.",
        )
    return parts


def _exactly(file: str, files: Sequence[str], repo: str) -> str:
    if file in files:
        return file
    raise BadUsage(
        f"{repo} has no file {file!r}.", hint=f"there are: {', '.join(files) or 'no GGUF files'}"
    )


def _models(names: Iterator[str]) -> list[str]:
    return sorted(
        name for name in names if name.endswith(".gguf") and not _name(name).startswith(_NO_MODEL)
    )


def _name(file: str) -> str:
    """Of a file in a folder, its own name, in small letters."""
    return file.rpartition("/")[2].lower()


@contextmanager
def _as_sentences(repo: str) -> Iterator[None]:
    """Turns whatever huggingface_hub raises into one of our errors."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        yield
    except GatedRepoError as error:
        raise BadUsage(
            f"the licence of {repo} must be accepted before it can be fetched.",
            hint="accept it on the repository's page, then set HF_TOKEN or pass -hft TOKEN.",
        ) from error
    except RepositoryNotFoundError as error:
        raise BadUsage(
            f"there is no repository {repo}, or it is private.",
            hint="check the spelling; for a private one set HF_TOKEN or pass -hft TOKEN.",
        ) from error
    except Exception as error:  # its HTTP library, and so what it raises, changes between releases
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        refused = getattr(getattr(error, "response", None), "status_code", 0) in (401, 403)
        way_out = "check the token" if refused else "check the network and run it again"
        raise SourceFailed(
            f"could not fetch from {repo}: {reason}.",
            hint=f"{way_out}, or pass a file with -m FILE.gguf",
        ) from error


def _reporting(report: Report) -> Any:
    """A progress bar class that paints nothing and reports instead."""
    from huggingface_hub.utils import tqdm

    class Reporting(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **{**settings, "disable": True})
            report("downloading", self.n, self.total or 0)

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            report("downloading", int(self.n), int(self.total or 0))

    return Reporting
