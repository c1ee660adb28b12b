"""From a prompt to its continuation: prefill, the loop, and where it stops."""

from turbodflash_engine.decode.drafting import Drafting
from turbodflash_engine.decode.loop import Onlooker, Step, decode
from turbodflash_engine.decode.prefill import prefill
from turbodflash_engine.decode.stats import Tally
from turbodflash_engine.decode.stop import Ending, StopStrings
from turbodflash_engine.decode.target import Output, Target
from turbodflash_engine.decode.thoughts import Thoughts
from turbodflash_engine.decode.window import Shift, Window

__all__ = [
    "Drafting",
    "Ending",
    "Onlooker",
    "Output",
    "Shift",
    "Step",
    "StopStrings",
    "Tally",
    "Target",
    "Thoughts",
    "Window",
    "decode",
    "prefill",
]
