"""The same prompts answered again, with something changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.drafters._base import Draft, Drafter, Rows
from turbodflash_engine.events import Progress, Speculation
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions
from turbodflash_engine.speculating import Prompt, Rivals

BETTER = 1.1
"""A change that brings so many times the tokens a pass has found something."""


class Shifted:
    """A drafter that is shown the inputs of other layers than it asks for."""

    def __init__(self, drafter: Drafter, by: int) -> None:
        self._drafter = drafter
        self.taps = tuple(tap + by for tap in drafter.taps)
        self.name, self.longest = drafter.name, drafter.longest

    @property
    def nbytes(self) -> int:
        return self._drafter.nbytes

    def draft(self, history: Sequence[int], width: int) -> Draft:
        return self._drafter.draft(history, width)

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        self._drafter.observe(tokens, positions, taps, coming)

    def truncate(self, length: int) -> None:
        self._drafter.truncate(length)

    def forget(self, start: int, stop: int) -> None:
        self._drafter.forget(start, stop)

    @property
    def form(self) -> str:
        return self._drafter.form

    def pieces(self) -> Pieces:
        return self._drafter.pieces()

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        self._drafter.resume(tokens, saved)


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
