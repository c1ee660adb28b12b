"""`turbodflash perplexity`: how well a model predicts a text, and what changes that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turbodflash_cli import perplexity_pages as pages
from turbodflash_cli.flags import ComputeFlags, ContextFlags, ModelFlags
from turbodflash_cli.flags.perplexity import PerplexityFlags
from turbodflash_cli.interrupt import Interrupt
from turbodflash_cli.opening import find_model
from turbodflash_cli.options import load_options
from turbodflash_cli.progress import Bar
from turbodflash_cli.prompts import STDIN, read_stdin, read_text
from turbodflash_cli.terminal import Terminal
from turbodflash_engine import BadUsage, LoadOptions, Progress

if TYPE_CHECKING:
    from turbodflash_engine import PerplexityOptions


def perplexity(
    terminal: Terminal,
    model: ModelFlags,
    flags: PerplexityFlags,
    window: ContextFlags,
    compute: ComputeFlags,
) -> int:
    """Measure, and print what was found on stdout."""
    _check(flags, window)
    text = _text(terminal, flags)
    options = load_options(find_model(terminal, model), window, compute)
    from turbodflash_engine import PerplexityOptions

    asked = PerplexityOptions(
        context=window.context,
        stride=flags.stride,
        chunks=flags.chunks,
        save=None if flags.compare else flags.base,
        against=flags.base if flags.compare else None,
    )
    bar = Bar(terminal)
    try:
        with Interrupt() as interrupt:
            page = _swept if flags.sweep else _measured
            found = page(terminal, options, text, asked, flags, _Watched(bar, interrupt))
    finally:
        bar.clear()
    terminal.write(found)
    return 0


class _Watched:
    """A bar that ends the work between two passes when a person asks for it.

    So what is half written is removed. While weights are loaded, other threads are at work, and
    nothing may be torn apart; a second signal leaves at once.
    """

    def __init__(self, bar: Bar, interrupt: Interrupt) -> None:
        self._bar, self._interrupt = bar, interrupt

    def __call__(self, progress: Progress) -> None:
        self._bar(progress)
        if self._interrupt.asked and progress.stage.startswith("perplexity"):
            raise KeyboardInterrupt

    def clear(self) -> None:
        self._bar.clear()


def _measured(
    terminal: Terminal,
    options: LoadOptions,
    text: str | None,
    asked: PerplexityOptions,
    flags: PerplexityFlags,
    bar: _Watched,
) -> str:
    from turbodflash_engine import measure_perplexity

    found = measure_perplexity(options, text, asked, bar)
    bar.clear()
    for note in found.notes:
        terminal.warn(note)
    for line in pages.details(found):
        terminal.detail(line)
    terminal.say(pages.speed_line(found))
    return pages.as_json(found) if flags.json else pages.page(found)


def _swept(
    terminal: Terminal,
    options: LoadOptions,
    text: str | None,
    asked: PerplexityOptions,
    flags: PerplexityFlags,
    bar: _Watched,
) -> str:
    from turbodflash_engine import sweep_cache_types

    assert text is not None
    rows = sweep_cache_types(options, text, asked, flags.sweep or (), bar)
    bar.clear()
    for note in dict.fromkeys(note for row in rows if row.found for note in row.found.notes):
        terminal.warn(note)
    return pages.sweep_json(rows) if flags.json else pages.sweep_table(rows)


def _check(flags: PerplexityFlags, window: ContextFlags) -> None:
    if flags.compare and flags.base is None:
        raise BadUsage(
            "--kl-divergence needs a base to compare with.", hint="--kl-divergence-base FILE"
        )
    if not flags.sweep:
        return
    typed = {**window.typed, **flags.typed}
    others = [typed[name] for name in ("cache_type_k", "cache_type_v", "base") if name in typed]
    if others:
        raise BadUsage(
            f"--kv-sweep chooses the cache types itself, and its base; leave out {others[0]}."
        )


def _text(terminal: Terminal, flags: PerplexityFlags) -> str | None:
    """The text to read; None = that of the base file."""
    if flags.file is not None and str(flags.file) != STDIN:
        text: str | None = read_text(flags.file, "text file")
    elif flags.file is not None or not (terminal.in_tty or flags.compare):
        text = read_stdin()
    else:
        text = None
    if text is None and not flags.compare:
        raise BadUsage("there is no text to read.", hint="turbodflash perplexity -f text.txt")
    if text is not None and not text.strip():
        raise BadUsage("the text is empty.", hint="turbodflash perplexity -f text.txt")
    return text
