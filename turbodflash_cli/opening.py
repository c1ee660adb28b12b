"""From options to an open session, and what the person should know about it."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from turbodflash_cli import speculation
from turbodflash_cli.flags import ModelFlags
from turbodflash_cli.interrupt import leaving_at_once
from turbodflash_cli.progress import Bar, size
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import LoadOptions

if TYPE_CHECKING:
    from turbodflash_engine import Session


def find_model(terminal: Terminal, flags: ModelFlags) -> Path:
    """The file to open: the one named, one of a repository, or the default model."""
    if flags.model and flags.model.is_file() and not (flags.hf_repo or flags.hf_file):
        return flags.model  # nothing of what fetching needs is imported
    from turbodflash_cli.fetch import resolve

    bar = Bar(terminal)
    try:
        return resolve(
            flags.model,
            flags.hf_repo,
            flags.hf_file,
            flags.offline,
            bar.report,
            token=flags.hf_token,
            note=terminal.note,
        )
    finally:
        bar.clear()


def open_model(terminal: Terminal, options: LoadOptions) -> Session:
    """Load the model, with a bar if that takes long."""
    if options.device != "reference":  # the only device that multiplies with numpy's BLAS
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    bar = Bar(terminal)
    try:
        with leaving_at_once(bar.clear), _without_collection():
            from turbodflash_engine import open_session

            session = open_session(options, bar)
    finally:
        bar.clear()
    _tell(terminal, session)
    _tell_of_draft(terminal, session, options)
    return session


@contextmanager
def _without_collection() -> Iterator[None]:
    """Imports and loading make many objects and no garbage; looking for it would take longer than
    reading the header. Afterwards they are never looked at again, so answers do not pause either.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if "triton" in sys.modules:  # at the end it complains about every object that is left
            atexit.register(gc.unfreeze)


def _tell(terminal: Terminal, session: Session) -> None:
    for note in session.info.notes:
        terminal.warn(note)
    for line in summary(session):
        terminal.detail(line)
    if session.info.sample_keys:
        keys = ", ".join(session.info.sample_keys)
        terminal.detail(f"sampling defaults from the file: {keys}")


def _tell_of_draft(terminal: Terminal, session: Session, options: LoadOptions) -> None:
    """Who drafts is always said: a draft that is not used must not go unnoticed."""
    draft = session.info.draft
    if draft is None or options.spec is None:
        return
    terminal.note(speculation.opening(draft))
    if draft.synthetic:
        terminal.warn(f"{speculation.NOT_REAL}.")
    for line in speculation.details(draft):
        terminal.detail(line)
    asked = options.spec.n_max
    if asked is not None and asked > draft.longest:
        terminal.detail(f"draft: {asked} tokens a step were asked for, {draft.longest} are drafted")


def summary(session: Session) -> list[str]:
    """Model, memory and device in a few lines."""
    info = session.info
    memory = info.memory
    rotated = " (rotated)" * info.cache_rotated
    return [
        f"model: {info.name} ({info.architecture} {info.file_type}, {size(info.file_bytes)},"
        f" {info.layers} layers, {info.parameters / 1e6:.1f} M parameters)",
        f"context: {info.context} tokens, KV cache {info.cache_type_k}/{info.cache_type_v}{rotated}"
        f" {size(memory.cache)}, {info.cache_row_bytes:,} bytes a token;"
        f" weights {size(memory.weights)}",
        f"device: {info.device}",
    ]
