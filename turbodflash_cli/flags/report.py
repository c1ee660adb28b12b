"""Options of the commands that report."""

from pathlib import Path
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import choice, on_off_auto, path, whole

FORMATS = ("table", "md", "json", "csv")


class BenchFlags(Group):
    """What is measured with a drafter, and how a measurement is printed."""

    panel = "Report"

    tokens: Annotated[
        int | None,
        flag(
            "-n",
            "--predict",
            "--n-gen",
            help="With a drafter: tokens of each answer.",
            metavar="N",
            parse=whole(low=2),
            default="128",
        ),
    ] = None
    repeats: Annotated[
        int | None,
        flag(
            "-r",
            "--repetitions",
            help="With a drafter: how often each prompt is answered, with it and without.",
            metavar="N",
            parse=whole(low=1),
            default="2",
        ),
    ] = None
    prompts: Annotated[
        Path | None,
        flag(
            "--prompts",
            help="With a drafter: other prompts, one a line, or JSON of kinds and texts.",
            metavar="FILE",
            parse=path,
            default="ten of four kinds",
        ),
    ] = None
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
