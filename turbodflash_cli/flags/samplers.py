"""How the samplers' own notations are read."""

from __future__ import annotations

import re

from turbodflash_cli.flags.values import number
from turbodflash_engine import SAMPLER_LETTERS, BadUsage, sampler_name


def sampler_names(name: str, written: str) -> tuple[str, ...]:
    """Names of samplers between semicolons, in the order they run."""
    return tuple(sampler_name(each) for each in written.split(";") if each.strip())


def sampler_letters(name: str, written: str) -> tuple[str, ...]:
    """Samplers by their letters."""
    for letter in written:
        if letter not in SAMPLER_LETTERS:
            raise BadUsage(
                f"{name} has no sampler {letter!r}.",
                hint=", ".join(f"{key} = {value}" for key, value in SAMPLER_LETTERS.items()),
            )
    return tuple(SAMPLER_LETTERS[letter] for letter in written)


def biased_token(name: str, written: str) -> tuple[int, float]:
    """`15043+1` or `15043-0.5`: the token id and what is added to its logit."""
    parts = re.fullmatch(r"(\d{1,9})([+-].+)", written.strip())
    if parts is None:
        raise BadUsage(f"{name} takes ID+BIAS or ID-BIAS, such as 15043+1, not {written!r}.")
    if parts[2].lower() in ("-inf", "-infinity"):
        return int(parts[1]), float("-inf")
    return int(parts[1]), number()(name, parts[2])
