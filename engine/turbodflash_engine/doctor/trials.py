"""The same prompts answered again, with something changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbodflash_engine.drafters._around import Around
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.events import Progress, Speculation
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions
from turbodflash_engine.speculating import Prompt, Rivals

BETTER = 1.1
"""A change that brings so many times the tokens a pass has found something."""


class Shifted(Around):
    """A drafter that is shown the inputs of other layers than it asks for."""

    def __init__(self, drafter: Drafter, by: int) -> None:
        super().__init__(drafter)
        self.taps = tuple(tap + by for tap in drafter.taps)


@dataclass(slots=True)
class Trials:
    """Answers to the prompts, greedy and of at most `tokens`, by one drafter after another.

    thinking: what is asked of the template; None leaves it to the template.
    """

    rivals: Rivals
    options: LoadOptions
    prompts: Sequence[Prompt]
    tokens: int
    thinking: bool | None
    report: Callable[[Progress], None]
    done: int = 0

    def account(self, drafter: Drafter | None = None, thinking: bool | None = None) -> Speculation:
        """What drafting did in all answers, with another drafter or other thoughts if given."""
        rivals = self.rivals
        if drafter is not None:
            rivals = Rivals.of(rivals.loaded._replace(drafter=drafter), self.options)
        say = SayOptions(
            max_tokens=self.tokens,
            sample=SampleOptions(temp=0.0, seed=0),
            thinking=self.thinking if thinking is None else thinking,
        )
        total = Speculation(self.rivals.draft.kind)
        for prompt in self.prompts:
            finished = rivals.answer(True, prompt.text, say).finished
            if finished.speculation is not None:
                total = total.plus(finished.speculation)
            self.done += 1
            self.report(Progress("diagnosing", self.done, 0, "answers"))
        return total


def better(other: Speculation, base: Speculation) -> bool:
    """Whether a change is more than chance."""
    return other.mean_accepted > BETTER * base.mean_accepted
