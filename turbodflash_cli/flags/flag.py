"""One option of the command line, declared once: its spellings, its help, how its value is read.

A field of a group is `Annotated` with its flag, and its default is what holds without the option.
One declaration feeds the parser, the help, the completion and the engine. A module of groups has no
postponed annotations: they are read when the program starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from turbodflash_cli.flags.values import text

Parse = Callable[[str, str], Any]


class Flag(NamedTuple):
    """What a person may write for one option.

    names: every spelling; errors use the first, the parser the first that begins with `--`.
    metavar: what stands for the value in the help; empty for a switch, which takes none.
    parse: (spelling, written value) -> value; raises BadUsage.
    off: spellings that switch it off.
    env: environment variable that is read when the option is absent; former_env: after it.
    default: what holds without the option, in words for the help.
    former: spellings of old that still work, with a note; the help does not name them.
    bare: the value meant when the option stands alone; empty = a value must follow.
    choices: what the value may be, for completion.
    many: may be given more than once; the values add up.
    common: shown by `-h`, not only by `--help-all`.
    """

    names: tuple[str, ...]
    help: str
    metavar: str = ""
    parse: Parse = text
    off: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    env: str = ""
    former_env: str = ""
    default: str = ""
    bare: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    common: bool = False

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the option."""
        return bool(self.metavar)

    @property
    def variables(self) -> list[str]:
        """Environment variables, in the order they are asked."""
        return [name for name in (self.env, self.former_env) if name]

    @property
    def canonical(self) -> str:
        """The spelling that the parser gets."""
        return _first_long(self.names)

    @property
    def canonical_off(self) -> str:
        """The spelling that the parser gets for "off"."""
        return _first_long(self.off)


def flag(*names: str, help: str, **more: Any) -> Flag:
    """A flag with these spellings."""
    return Flag(names, help, **more)


class Group:
    """A few options that belong together; `panel` is their heading in the help.

    typed: field -> spelling, of those that stood on the command line itself.
    Not a dataclass: a hundred fields would cost a tenth of the time that `--help` may take.
    """

    panel: ClassVar[str]
    typed: Mapping[str, str] = {}

    def __init__(self, **given: Any) -> None:
        """given: values by field; what is missing keeps its default."""
        vars(self).update(given)


def flags_of(group: type[Group]) -> Iterator[tuple[str, Flag]]:
    """(field name, flag) of every option in a group, as declared."""
    for name, annotated in group.__annotations__.items():
        yield name, annotated.__metadata__[0]


def _first_long(names: tuple[str, ...]) -> str:
    return next(name for name in names if name.startswith("--"))
