"""Texts that outlast the context, and prompts that outlast the program."""

from pathlib import Path
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import path, whole


class LastingFlags(Group):
    """What becomes of a text beyond the context and beyond the program."""

    panel = "Long texts"

    context_shift: Annotated[
        bool,
        flag(
            "--context-shift",
            off=("--no-context-shift",),
            help="Go on when the context is full: drop half of what --keep does not name.",
            env="LLAMA_ARG_CONTEXT_SHIFT",
            default="off",
        ),
    ] = False
    keep: Annotated[
        int | None,
        flag(
            "--keep",
            help="Tokens of the prompt that a context shift never drops; -1 = all of the first.",
            metavar="N",
            parse=whole(low=-1),
            default="0",
        ),
    ] = None
    prompt_cache: Annotated[
        Path | None,
        flag(
            "--prompt-cache",
            help="Keep the prompt's cache in a file; a prompt that begins alike is read faster.",
            metavar="FILE",
            parse=path,
        ),
    ] = None
    prompt_cache_all: Annotated[
        bool,
        flag("--prompt-cache-all", help="Keep the answer in it, too.", default="off"),
    ] = False
    prompt_cache_ro: Annotated[
        bool,
        flag("--prompt-cache-ro", help="Use that file, and leave it as it is.", default="off"),
    ] = False
