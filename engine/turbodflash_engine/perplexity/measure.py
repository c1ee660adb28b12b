"""`measure_perplexity`: one model, one text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Progress
from turbodflash_engine.info import ModelInfo
from turbodflash_engine.loading import Loaded, load
from turbodflash_engine.options import LoadOptions
from turbodflash_engine.perplexity.base_file import BaseFile, open_base, write_base
from turbodflash_engine.perplexity.belonging import check_base, header_of
from turbodflash_engine.perplexity.divergence import Divergence, diverged
from turbodflash_engine.perplexity.estimates import Estimate, Values, perplexity
from turbodflash_engine.perplexity.reading import Comparer, Recorder, Silent, Watcher, read_windows
from turbodflash_engine.perplexity.windows import Shape, Windows, cut

CONTEXT = 512

Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class PerplexityOptions:
    """How a text is read.

    context: tokens of a chunk; None = as the base has it, else 512; 0 = as the model was trained.
    stride: tokens between two chunks; None = as the base has it, else 0: one after the other.
    chunks: the most that are read; None = all. save: write a base file. against: measure how far
    the model is from a base file, whose tokens are read where no text is given.
    """

    context: int | None = None
    stride: int | None = None
    chunks: int | None = None
    save: Path | None = None
    against: Path | None = None

    def __post_init__(self) -> None:
        if self.chunks is not None and self.chunks < 1:
            raise BadUsage(f"{self.chunks} chunks are no text; it must be at least 1")
        if self.save and self.against:
            raise BadUsage("a base file is written or compared with, not both at once")


@dataclass(frozen=True, slots=True)
class Perplexity:
    """What was found.

    ppl: with its standard error. running: the perplexity after each chunk. tokens: all that were
    read; scored: those whose probability counts. stride: 0 = none. notes: sentences that a
    person should read. divergence: from a base.
    """

    model: str
    file: Path
    device: str
    cache_type_k: str
    cache_type_v: str
    cache_bytes_per_token: float
    context: int
    stride: int
    chunks: int
    tokens: int
    scored: int
    ppl: Estimate
    running: tuple[float, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    divergence: Divergence | None = None

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def measure_perplexity(
    options: LoadOptions,
    text: str | None,
    asked: PerplexityOptions,
    progress: Report | None = None,
    stage: str = "perplexity",
) -> Perplexity:
    """Load the model and let it read the text; `options.context` is set from what is asked.

    Raises what loading raises, and BadUsage for a text that is too short or a base that does not
    fit. text: None only where a base is compared with.
    """
    with ExitStack() as files:
        base = files.enter_context(open_base(asked.against)) if asked.against else None
        shape = _shape(asked, base)
        loaded = load(replace(options, context=shape.length, spec=None), progress)
        shape = shape.trained(loaded.info.context)
        windows = _windows(loaded, text, shape, base).head(asked.chunks)
        watcher: Watcher = Silent()
        if base:
            watcher = Comparer(base)
        elif asked.save:
            header = header_of(loaded, windows, shape)
            watcher = Recorder(files.enter_context(write_base(asked.save, header, windows)))
        start = perf_counter()
        ubatch = min(options.batch, options.ubatch)
        nll = read_windows(loaded.model, windows, watcher, progress, ubatch=ubatch, stage=stage)
        seconds = perf_counter() - start
    found = _found(loaded.info, shape, windows, nll, seconds)
    if isinstance(watcher, Comparer):
        found = replace(found, divergence=diverged(watcher.difference))
    return found


def _found(
    info: ModelInfo, shape: Shape, windows: Windows, nll: Values, seconds: float
) -> Perplexity:
    so_far = nll.sum(axis=1).cumsum() / (np.arange(1, windows.count + 1) * windows.scored)
    return Perplexity(
        model=info.name,
        file=info.path,
        device=info.device,
        cache_type_k=info.cache_type_k,
        cache_type_v=info.cache_type_v,
        cache_bytes_per_token=info.memory.cache / info.context,
        context=shape.context,
        stride=shape.stride,
        chunks=windows.count,
        tokens=windows.tokens.size,
        scored=nll.size,
        ppl=perplexity(nll.ravel()),
        running=tuple(np.exp(so_far).tolist()),
        seconds=seconds,
        notes=info.notes,
    )


def _shape(asked: PerplexityOptions, base: BaseFile | None) -> Shape:
    if base is None:
        shape = Shape(CONTEXT if asked.context is None else asked.context, asked.stride or 0)
        shape.check()
        return shape
    header = base.header
    for name in ("context", "stride"):
        wanted, has = getattr(asked, name), getattr(header, name)
        if wanted not in (None, has):
            raise BadUsage(
                f"the base file was written with a {name} of {has}, not {wanted}",
                hint=f"leave the {name} out",
            )
    if asked.chunks is not None and asked.chunks > header.windows:
        raise BadUsage(
            f"the base file has {header.windows} chunks, not {asked.chunks}",
            hint="ask for fewer, or for all",
        )
    return Shape(header.context, header.stride)


def _windows(loaded: Loaded, text: str | None, shape: Shape, base: BaseFile | None) -> Windows:
    tokenizer = loaded.tokenizer
    if base:
        check_base(loaded, base)
        if text is None:
            return base.windows
    if text is None:
        raise BadUsage("there is no text to read", hint="name a file of text")
    tokens = tokenizer.encode(text, add_special=False, parse_special=False)
    bos = [tokenizer.bos_id] if tokenizer.add_bos else []
    windows = cut([*bos, *tokens], shape, bos=bos[0] if bos else None)
    if base and not np.array_equal(windows.tokens[: base.windows.count], base.windows.tokens):
        raise BadUsage(
            "the base file was written for another text",
            hint="leave the text out: the base file has its own",
        )
    return windows.head(base.windows.count if base else None)
