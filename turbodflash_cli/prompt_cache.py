"""A prompt's cache in a file: read before the first answer, written after the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from turbodflash_cli.flags import LastingFlags
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage, Finished

if TYPE_CHECKING:
    from turbodflash_engine import Session


def check_flags(flags: LastingFlags) -> None:
    """Raises BadUsage for an option that needs a file and has none, or that another one undoes."""
    for name, given in (("all", flags.prompt_cache_all), ("ro", flags.prompt_cache_ro)):
        if given and flags.prompt_cache is None:
            raise BadUsage(
                f"--prompt-cache-{name} needs a file.", hint="name it with --prompt-cache"
            )
    if flags.prompt_cache_all and flags.prompt_cache_ro:
        raise BadUsage(
            "--prompt-cache-all writes, --prompt-cache-ro does not.", hint="leave one of them out"
        )


@contextmanager
def kept_prompt(terminal: Terminal, session: Session, flags: LastingFlags) -> Iterator[None]:
    """Around all answers of a session."""
    file = flags.prompt_cache
    if file is None:
        yield
        return
    from turbodflash_engine import NotReusable

    if file.exists():
        try:
            count = session.restore(file)
            terminal.detail(f"prompt cache: {count:,} tokens in {str(file)!r}")
        except NotReusable as error:
            terminal.warn(f"{error}; {error.hint}")
    yield
    if not flags.prompt_cache_ro:
        session.save(file, answer=flags.prompt_cache_all)


def say_reused(terminal: Terminal, flags: LastingFlags, finished: Finished) -> None:
    """How much of the prompt was found in the file."""
    if flags.prompt_cache is not None:
        cached, size = finished.cached_tokens, finished.prompt_tokens
        terminal.note(f"[prompt cache: {cached:,} of {size:,} tokens reused]")
