"""A prompt cache: tokens with the caches of a model and its drafter, bound to both."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Arrays, Piece, below, expect, within
from turbodflash_engine.decode.target import Target
from turbodflash_engine.decode.window import Window
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.errors import BadUsage, TurbodflashError
from turbodflash_engine.saving.tensors_file import (
    Unreadable,
    check_whole,
    read_tensors,
    write_tensors,
)

FORMAT, VERSION = "turbodflash prompt cache", "1"
_TOKENS, _WHOLE, _MODEL, _DRAFT = "tokens", "whole", "model.", "draft."
_SAMPLES, _SAMPLE_BYTES = 64, 1 << 16


class NotReusable(TurbodflashError):
    """A prompt cache cannot be used here; all is computed as if there were none."""


class Belongs(NamedTuple):
    """What a prompt cache is bound to, as texts that are equal or not.

    model, draft: the contents of their files; form, draft_form: how their caches are stored.
    """

    model: str
    form: str
    draft: str
    draft_form: str

    @classmethod
    def to(cls, model: Target, drafter: Drafter, file: Path, draft: Path | None) -> Belongs:
        return cls(
            fingerprint(file),
            model.cache.form,
            fingerprint(draft) if draft else "",
            f"{drafter.name} {drafter.form}",
        )


def write_cache(path: Path, belongs: Belongs, window: Window) -> None:
    """Replace the file by what the window holds, at once or not at all."""
    tokens = np.array(window.tokens, np.int32)
    whole = np.array([min(window.whole, len(tokens))], np.int32)
    pieces = {
        _TOKENS: Piece("I32", tokens.shape, lambda: tokens),
        _WHOLE: Piece("I32", (1,), lambda: whole),
        **below(_MODEL, window.model.cache.pieces()),
        **below(_DRAFT, window.drafter.pieces()),
    }
    write_tensors(path, {"format": FORMAT, "version": VERSION, **belongs._asdict()}, pieces)


def read_cache(path: Path, belongs: Belongs, window: Window) -> None:
    """Fill an empty window with what a file holds.

    Raises NotReusable for a cache that does not belong here or is damaged, after which the window
    is empty, and BadUsage for a file that is something else, which must not be overwritten.
    """
    try:
        metadata, arrays = _opened(path)
        _check(metadata, belongs)
        check_whole(arrays)
        _fill(window, arrays)
    except Unreadable as error:
        window.clear()
        raise _not_reusable(path, str(error)) from None
    except (KeyError, ValueError) as error:
        window.clear()
        raise _not_reusable(path, f"is damaged: {error}") from None


def fingerprint(path: Path) -> str:
    """Of a file's size, its beginning and samples of all of it; it takes no time with any size."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for sample in range(_SAMPLES):
            file.seek(sample * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _opened(path: Path) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    try:
        metadata, arrays = read_tensors(path)
    except OSError as error:
        raise BadUsage(f"cannot read the prompt cache '{path}': {error.strerror}") from error
    except Unreadable:
        if _is_ours(path):
            raise
        metadata = {}
    if metadata.get("format") != FORMAT:
        raise BadUsage(
            f"'{path}' is no prompt cache, and would be overwritten",
            hint="name another file, or one that is not there yet",
        )
    return metadata, arrays


def _is_ours(path: Path) -> bool:
    """Whether a file that cannot be read began as a prompt cache, or never got to be anything."""
    with path.open("rb") as file:
        beginning = file.read(256)
    return not beginning or FORMAT.encode() in beginning


def _check(metadata: dict[str, str], belongs: Belongs) -> None:
    version = metadata.get("version")
    if version != VERSION:
        raise Unreadable(f"has version {version}; version {VERSION} is read")
    differs = {
        "model": "is of another model",
        "form": "is of a cache of other types, or of other positions",
        "draft": "was saved with another draft",
        "draft_form": "was saved with another drafter, or a cache of other types",
    }
    for name, expected in belongs._asdict().items():
        if metadata.get(name) != expected:
            raise Unreadable(differs[name])


def _fill(window: Window, arrays: Arrays) -> None:
    tokens, whole = arrays[_TOKENS], arrays[_WHOLE]
    capacity = window.model.cache.capacity
    if tokens.size > capacity:
        raise Unreadable(f"holds {tokens.size:,} tokens; the context holds {capacity:,}")
    expect(tokens, "int32", tokens.size)
    expect(whole, "int32", 1)
    window.fill(tokens.tolist(), int(whole[0]), within(arrays, _MODEL), within(arrays, _DRAFT))


def _not_reusable(path: Path, why: str) -> NotReusable:
    return NotReusable(
        f"the prompt cache '{os.fspath(path)}' {why}", hint="everything is computed anew"
    )
