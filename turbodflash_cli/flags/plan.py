"""Options of `turbodflash plan`."""

from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import on_off_auto, text


class PlanFlags(Group):
    """What is planned, for which card, and how it is told."""

    panel = "Plan"

    gpu: Annotated[
        str | None,
        flag(
            "--gpu",
            help="Plan for this card, such as rtx5090; a wrong name shows them all.",
            metavar="NAME",
            parse=text,
        ),
    ] = None
    roofline: Annotated[
        bool,
        flag(
            "--roofline",
            help="Predict speeds on --gpu: of the model of -m, or of the published runs.",
        ),
    ] = False
    json: Annotated[bool, flag("--json", help="One JSON object with everything.")] = False
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
