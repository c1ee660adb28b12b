"""Options of `turbodflash perplexity`."""

from pathlib import Path
from typing import Annotated

from turbodflash_cli.flags.context import cache_type
from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import on_off_auto, path, whole
from turbodflash_engine import CACHE_TYPES, BadUsage


def chunk_count(name: str, written: str) -> int | None:
    """How many, or -1 for all."""
    count = whole(low=-1)(name, written)
    if count == 0:
        raise BadUsage(f"{name} 0 reads nothing.", hint=f"{name} -1 reads all of the text")
    return None if count < 0 else count


def cache_types(name: str, written: str) -> tuple[tuple[str, str], ...]:
    """Types of the KV cache by commas, each for keys and values, or `K/V`; `all` is every type."""
    if written.strip().lower() == "all":
        return tuple((each, each) for each in CACHE_TYPES)
    words = [each.strip() for each in written.split(",") if each.strip()]
    if not words:
        raise BadUsage(f"{name} takes cache types by commas, not {written!r}.", hint="q8_0,q4_0")
    pairs = (word.partition("/") for word in words)
    return tuple(
        (cache_type(name, k), cache_type(name, v if slash else k)) for k, slash, v in pairs
    )


class PerplexityFlags(Group):
    """What is read, what it is compared with, and how that is printed."""

    panel = "Perplexity"

    file: Annotated[
        Path | None,
        flag(
            "-f",
            "--file",
            help="The text; - reads stdin, and so does a pipe without -f.",
            metavar="FILE",
            parse=path,
        ),
    ] = None
    chunks: Annotated[
        int | None,
        flag(
            "--chunks",
            help="Chunks of -c tokens to read; the second half of each is scored.",
            metavar="N",
            parse=chunk_count,
            default="-1 = all",
        ),
    ] = None
    stride: Annotated[
        int | None,
        flag(
            "--ppl-stride",
            help="Begin a chunk every N tokens, and score its last N.",
            metavar="N",
            parse=whole(low=0),
            default="0 = one chunk after the other",
        ),
    ] = None
    base: Annotated[
        Path | None,
        flag(
            "--kl-divergence-base",
            "--save-all-logits",
            help="Write what the model says to a file; with --kl-divergence, read it.",
            metavar="FILE",
            parse=path,
        ),
    ] = None
    compare: Annotated[
        bool,
        flag("--kl-divergence", help="Measure how far the model is from --kl-divergence-base."),
    ] = False
    sweep: Annotated[
        tuple[tuple[str, str], ...] | None,
        flag(
            "--kv-sweep",
            help="A table over types of the KV cache, as q8_0,q8_0/turbo4, against f16.",
            metavar="TYPES",
            parse=cache_types,
            bare="all",
            choices=("all", *CACHE_TYPES),
        ),
    ] = None
    json: Annotated[bool, flag("--json", help="One JSON object on stdout with everything.")] = False
    color: Annotated[
        str | None,
        flag(
            "-co",
            "--color",
            help="Colours.",
            metavar="on|off|auto",
            parse=on_off_auto,
            default="auto",
            bare="on",
            choices=("on", "off", "auto"),
        ),
    ] = None
    verbose: Annotated[bool, flag("-v", "--verbose", help="Say more on stderr.")] = False
