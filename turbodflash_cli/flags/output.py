"""What is shown, and where."""

from pathlib import Path
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import on_off_auto, path, whole


class OutputFlags(Group):
    """Generated text goes to stdout, everything else to stderr."""

    panel = "Output and logging"

    json: Annotated[
        bool, flag("--json", help="One JSON object on stdout instead of text.", common=True)
    ] = False
    timings_json: Annotated[
        Path | None,
        flag("--timings-json", help="Write the timings to a file.", metavar="FILE", parse=path),
    ] = None
    output: Annotated[
        Path | None,
        flag(
            "-o",
            "--output",
            "--output-file",
            help="Write a transcript to a file.",
            metavar="FILE",
            parse=path,
        ),
    ] = None
    display_prompt: Annotated[
        bool,
        flag(
            "--display-prompt",
            help="Print the prompt before the answer.",
            off=("--no-display-prompt",),
            default="off",
            common=True,
        ),
    ] = False
    show_timings: Annotated[
        bool,
        flag(
            "--show-timings",
            help="The line of prompt and generation speed.",
            off=("--no-show-timings",),
            env="LLAMA_ARG_SHOW_TIMINGS",
            default="on",
            common=True,
        ),
    ] = True
    stats: Annotated[
        bool, flag("--stats", help="After an answer, how the drafting went.", common=True)
    ] = False
    spec_doctor: Annotated[
        bool,
        flag("--spec-doctor", help="Why drafts are rarely right: look for known causes."),
    ] = False
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
            common=True,
        ),
    ] = None
    simple_io: Annotated[
        bool, flag("--simple-io", help="Plain lines instead of a line editor.", common=True)
    ] = False
    verbose: Annotated[
        bool,
        flag(
            "-v",
            "--verbose",
            "--log-verbose",
            help="Say more on stderr, with tracebacks.",
            common=True,
        ),
    ] = False
    verbosity: Annotated[
        int | None,
        flag(
            "-lv",
            "--verbosity",
            "--log-verbosity",
            help="4 or more is the same as -v.",
            metavar="N",
            parse=whole(),
            env="LLAMA_ARG_LOG_VERBOSITY",
        ),
    ] = None

    @property
    def talkative(self) -> bool:
        """Whether details were asked for."""
        return self.verbose or (self.verbosity or 0) >= 4
