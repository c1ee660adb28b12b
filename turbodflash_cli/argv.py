"""The command line, made regular before it is parsed.

People write `--cache_type_k`, a bare `-fa`, `-mx` for `-m x`, and paste commands of other programs.
`scan` turns all that into `command --long=value ...`, or stops with a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from turbodflash_cli import foreign
from turbodflash_cli.flags import Flag, Group, flags_of
from turbodflash_engine import BadUsage

ROOT = ""
"""The command that runs when none is named."""

HELP = dict.fromkeys(("-h", "--help", "--usage", "--help-all"), "--help")
ROOT_ONLY = {
    "--help-all": "--help-all",
    "--version": "--version",
    "--list-devices": "--list-devices",
    "--completion-bash": "--show-completion",
    "--show-completion": "--show-completion",
    "--install-completion": "--install-completion",
}


class Grammar(NamedTuple):
    """What one command understands: its options by every spelling, and how many free words."""

    flags: Mapping[str, Flag]
    words: int = 0

    @classmethod
    def of(cls, *groups: type[Group], words: int = 0) -> Grammar:
        """The grammar of a command with these groups of options."""
        flags = [each for group in groups for _, each in flags_of(group)]
        return cls(
            {name: each for each in flags for name in (*each.names, *each.off, *each.former)}, words
        )


@dataclass(slots=True)
class Scanned:
    """A regular command line, and what the person should be told about it.

    spelled: regular spelling -> the person's own.
    """

    words: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    spelled: dict[str, str] = field(default_factory=dict)


def scan(argv: Sequence[str], grammars: Mapping[str, Grammar | None]) -> Scanned:
    """Regular words for the parser.

    grammars: by command; `ROOT` is the program without one; None = the command reads its own words.
    """
    root = grammars[ROOT]
    assert root is not None
    at = _command_at(argv, root)
    if at is None or argv[at] == ROOT or argv[at] not in grammars:
        return _Scanner(root, list(grammars)).scan(argv)
    command, others = argv[at], [*argv[:at], *argv[at + 1 :]]
    grammar = grammars[command]
    if grammar is None:
        return Scanned([command, *others])
    scanned = _Scanner(grammar, []).scan(others)
    scanned.words.insert(0, command)
    return scanned


def is_option(word: str) -> bool:
    """Whether a word is spelled like an option: `-` alone is stdin."""
    return word.startswith("-") and word != "-"


def split(word: str) -> tuple[str, str | None]:
    """`--some_name=value` as `--some-name` and `value`; other words are left alone."""
    if not word.startswith("--"):
        return word, None
    name, glued, value = word.partition("=")
    return name.replace("_", "-"), value if glued else None


def _command_at(argv: Sequence[str], root: Grammar) -> int | None:
    """Where the first word is that belongs to no option."""
    at = 0
    while at < len(argv):
        if not is_option(argv[at]):
            return at
        at += 1 + _words_taken(argv, at, root)
    return None


def _words_taken(argv: Sequence[str], at: int, grammar: Grammar) -> int:
    """How many words after this option are its value."""
    name, glued = split(argv[at])
    if glued is not None:
        return 0
    if name not in grammar.flags:
        return foreign.words_after(name) or 0
    known = grammar.flags[name]
    if not known.takes_value:
        return 0
    return int(not known.bare or _may_be_bare_value(argv[at + 1 : at + 2], known))


def _may_be_bare_value(following: Sequence[str], known: Flag) -> bool:
    """Whether the next word is the value of an option that may stand alone."""
    return bool(following) and (
        following[0].lower() in (*known.choices, "0", "1", "-1", "true", "false")
        or not is_option(following[0])
    )


class _Scanner:
    def __init__(self, grammar: Grammar, commands: Sequence[str]) -> None:
        self.grammar = grammar
        self.commands = [name for name in commands if name]
        self.is_root = bool(commands)
        self.free_words = grammar.words
        self.found = Scanned()

    def scan(self, argv: Sequence[str]) -> Scanned:
        at = 0
        while at < len(argv):
            name, glued = split(argv[at])
            shown = (ROOT_ONLY.get(name) if self.is_root else None) or HELP.get(name)
            if shown is not None:
                return Scanned([shown], self.found.notes)
            if not is_option(argv[at]):
                self._free_word(argv[at])
                at += 1
                continue
            taken = _words_taken(argv, at, self.grammar)
            values = [glued] if glued is not None else list(argv[at + 1 : at + 1 + taken])
            self._option(name, values, wanted=max(taken, len(values)))
            at += 1 + taken
        return self.found

    def _free_word(self, word: str) -> None:
        if self.free_words == 0:
            raise self._stray(word)
        self.free_words -= 1
        self.found.words.append(word)

    def _option(self, name: str, values: list[str], wanted: int) -> None:
        if len(values) < wanted:
            raise BadUsage(f"option {name!r} needs a value.")
        if name in self.grammar.flags:
            self._own(name, self.grammar.flags[name], values)
        elif foreign.words_after(name) is not None:
            self._foreign(name, values)
        else:
            raise self._unknown(name)

    def _own(self, name: str, known: Flag, values: list[str]) -> None:
        if name in known.former:
            self.found.notes.append(f"note: {name!r} is now {known.names[0]!r}.")
        if not known.takes_value:
            if values:
                raise BadUsage(f"option {name!r} takes no value, not even {values[0]!r}.")
            off = name in known.off
            self.found.words.append(known.canonical_off if off else known.canonical)
            return
        value = values[0] if values else known.bare
        if value in self.grammar.flags:
            self.found.notes.append(f"warning: option {name!r} took {value!r} as its value.")
        self.found.words.append(f"{known.canonical}={value}")
        self.found.spelled[known.canonical] = name

    def _foreign(self, name: str, values: list[str]) -> None:
        if name in foreign.IGNORED:
            self.found.notes.append(f"note: {name!r} has no effect here.")
        else:
            raise BadUsage(
                f"{name!r} is not supported by turbodflash.", hint=foreign.INSTEAD.get(name, "")
            )

    def _stray(self, word: str) -> BadUsage:
        from difflib import get_close_matches

        near = get_close_matches(word, self.commands, n=1)
        quoted = word if len(word) <= 40 else f"{word[:37]}..."
        return BadUsage(
            f"unexpected word {quoted!r}." + (f" Did you mean {near[0]!r}?" if near else ""),
            hint="a prompt is given with -p: turbodflash -p '...'"
            if self.is_root and not near
            else "",
        )

    def _unknown(self, name: str) -> BadUsage:
        from difflib import get_close_matches

        shorter = name.partition("=")[0]
        if shorter != name and shorter in self.grammar.flags:
            return BadUsage(f"a value is a word of its own: {shorter} {name[len(shorter) + 1 :]}")
        known = [*self.grammar.flags, *HELP, *(ROOT_ONLY if self.is_root else ())]
        near = get_close_matches(name, known, n=1) or [
            flag
            for flag in (name[:4], name[:3], name[:2])
            if flag in self.grammar.flags and self.grammar.flags[flag].takes_value
        ]
        suggestion = f" Did you mean {near[0]!r}?" if near else ""
        return BadUsage(f"unknown option {name!r}.{suggestion}", hint="turbodflash -h lists them")
