"""Option groups filled from regular words, the environment and the defaults, in this order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turbodflash_cli.flags import Flag, Group, flags_of
from turbodflash_cli.flags.values import on_off
from turbodflash_cli.terminal import Terminal


def filled(
    groups: Sequence[type[Group]],
    words: Sequence[str],
    spelled: Mapping[str, str],
    terminal: Terminal,
) -> list[Any]:
    """The groups, each with its values.

    words: as `argv.scan` makes them, options alone. spelled: regular spelling -> the person's own.
    What was written is read first, in the order of the words. Raises BadUsage.
    """
    flags = {name: flag for group in groups for name, flag in flags_of(group)}
    written = _written(flags, words)
    values: dict[str, Any] = {}
    for name in (*written, *(name for name in flags if name not in written)):
        flag = flags[name]
        if name in written:
            spelling = spelling_of(flag, spelled)
            warn_if_overruled(flag, spelling, terminal)
            values[name] = read(flag, spelling, written[name] if flag.many else written[name][-1])
        elif (value := from_environment(flag)) is not None:
            values[name] = read(flag, asked_variable(flag), value)
    typed = {name: spelling_of(flags[name], spelled) for name in written}
    return [_of(group, values, typed) for group in groups]


def spelling_of(flag: Flag, spelled: Mapping[str, str]) -> str:
    """How the person wrote an option."""
    return spelled.get(flag.canonical, flag.names[0])


def asked_variable(flag: Flag) -> str:
    """The variable that gives an option its value, or would."""
    return _set_variable(flag) or flag.env


def from_environment(flag: Flag) -> Any:
    """The words that the environment has for an option, or None.

    Of a pair, `LLAMA_ARG_NO_X` alone switches off.
    """
    if flag.off and flag.env:
        negative = flag.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)
        if negative in os.environ:
            return "off"
    variable = _set_variable(flag)
    if not variable:
        return None
    value = os.environ[variable]
    return value.split() if flag.many else value


def warn_if_overruled(flag: Flag, spelling: str, terminal: Terminal) -> None:
    """A variable that counts for nothing must not go unnoticed."""
    if variable := _set_variable(flag):
        terminal.warn(
            f"{variable} environment variable is set, "
            f"but will be overwritten by command line argument {spelling}"
        )


def read(flag: Flag, name: str, value: Any) -> Any:
    """The typed value of what was written, of a list of that, or of a value that is one already."""
    if flag.many:
        return tuple(flag.parse(name, each) for each in value or ())
    if isinstance(value, str):
        return flag.parse(name, value) if flag.takes_value else on_off(name, value)
    return value


def _set_variable(flag: Flag) -> str:
    return next((each for each in flag.variables if os.environ.get(each)), "")


def _written(flags: Mapping[str, Flag], words: Sequence[str]) -> dict[str, list[Any]]:
    """Field -> what stands after its option, each time; of a switch, whether it is on."""
    fields = {spelling: name for name, flag in flags.items() for spelling in _regular(flag)}
    written: dict[str, list[Any]] = {}
    for word in words:
        spelling, _, value = word.partition("=")
        name = fields[spelling]
        flag = flags[name]
        given = value if flag.takes_value else spelling == flag.canonical
        written.setdefault(name, []).append(given)
    return written


def _regular(flag: Flag) -> Iterator[str]:
    yield flag.canonical
    if flag.off:
        yield flag.canonical_off


def _of(group: type[Group], values: Mapping[str, Any], typed: Mapping[str, str]) -> Group:
    names = [name for name, _ in flags_of(group)]
    return group(
        typed={name: typed[name] for name in names if name in typed},
        **{name: values[name] for name in names if values.get(name) is not None},
    )
