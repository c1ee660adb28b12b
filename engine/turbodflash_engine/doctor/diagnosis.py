"""What an examination finds."""

from __future__ import annotations

from typing import NamedTuple

from turbodflash_engine.events import Speculation


class Check(NamedTuple):
    """One thing that was looked at. suspect: it is a likely cause of low acceptance."""

    name: str
    suspect: bool
    words: str


class Diagnosis(NamedTuple):
    """What was found about a pair.

    template: which chat template the prompts went through, and whether it asked for thoughts.
    example: the first prompt as the model saw it. speculation: all answers, every draft verified
    whole; per_position and mean_accepted are those of the draft, not of a controller.
    """

    draft_kind: str
    template: str
    example: str
    checks: tuple[Check, ...]
    speculation: Speculation

    @property
    def suspects(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.suspect)
