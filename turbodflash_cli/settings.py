"""What `/set` can change between two messages: the sampling options, under their own names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turbodflash_cli.flags import Flag, SamplingFlags, flags_of
from turbodflash_cli.flags.values import on_off_auto, whole
from turbodflash_engine import SayOptions, Unknown

_SAMPLING: dict[str, tuple[str, Flag]] = {
    spelling.removeprefix("--"): (name, flag)
    for name, flag in flags_of(SamplingFlags)
    if not flag.many and name != "sampler_seq" and flag.takes_value
    for spelling in flag.names
    if spelling.startswith("--")
}
_THINKING = {"on": True, "off": False, "auto": None}

NAMES = (*_SAMPLING, "n", "reasoning")


def change(options: SayOptions, name: str, written: str) -> SayOptions:
    """The options with one setting changed; raises BadUsage."""
    name = name.lower().lstrip("-").replace("_", "-")
    if name == "n":
        return replace(options, max_tokens=whole(low=-2)("n", written))
    if name == "reasoning":
        return replace(options, thinking=_THINKING[on_off_auto(name, written)])
    if name not in _SAMPLING:
        raise Unknown("setting", name, NAMES)
    field, flag = _SAMPLING[name]
    given: dict[str, Any] = {field: flag.parse(name, written)}
    return replace(options, sample=replace(options.sample, **given))


def current(options: SayOptions) -> list[tuple[str, str]]:
    """Every setting and its value, as `/set` takes them."""
    thinking = next(word for word, value in _THINKING.items() if value is options.thinking)
    shown = [("n", str(options.max_tokens)), ("reasoning", thinking)]
    fields = {field: name for name, (field, _) in reversed(_SAMPLING.items())}
    for field, name in reversed(fields.items()):
        value = getattr(options.sample, field)
        shown.append((name, ";".join(value) if isinstance(value, tuple) else f"{value}"))
    return shown
