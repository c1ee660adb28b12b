"""The options of the command line, in groups; each group is a heading of the help."""

from turbodflash_cli.flags.compute import ComputeFlags
from turbodflash_cli.flags.context import ContextFlags
from turbodflash_cli.flags.draft import DraftFlags
from turbodflash_cli.flags.flag import Flag, Group, flag, flags_of
from turbodflash_cli.flags.lasting import LastingFlags
from turbodflash_cli.flags.model import ModelFlags
from turbodflash_cli.flags.ngram import NgramFlags
from turbodflash_cli.flags.output import OutputFlags
from turbodflash_cli.flags.prompt import PromptFlags, ReasoningFlags
from turbodflash_cli.flags.sampling import SamplingFlags

__all__ = [
    "ComputeFlags",
    "ContextFlags",
    "DraftFlags",
    "Flag",
    "Group",
    "LastingFlags",
    "ModelFlags",
    "NgramFlags",
    "OutputFlags",
    "PromptFlags",
    "ReasoningFlags",
    "SamplingFlags",
    "flag",
    "flags_of",
]
