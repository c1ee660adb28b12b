"""Options of the commands that report."""

from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import choice, on_off_auto

FORMATS = ("table", "md", "json", "csv")


class BenchFlags(Group):
    """How a measurement is printed."""

    panel = "Report"

    format: Annotated[
        str | None,
        flag(
            "-o",
            "--output",
            help="How the figures are printed on stdout.",
            metavar="table|md|json|csv",
            parse=choice(*FORMATS),
            default="table",
            choices=FORMATS,
        ),
    ] = None
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


class InspectFlags(Group):
    """What is shown of a file."""

    panel = "Report"

    json: Annotated[bool, flag("--json", help="One JSON object with everything.")] = False
    tensors: Annotated[bool, flag("--tensors", help="Every tensor: name, type, shape, size.")] = (
        False
    )
    metadata: Annotated[bool, flag("--metadata", help="Every key and its value.")] = False
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
