"""Answers side by side, and the figures they amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turbodflash_engine.events import Speculation
from turbodflash_engine.speculating.rivals import Answered, Prompt

Figures = dict[str, Any]


@dataclass(slots=True)
class Pair:
    """A prompt's answers, turn by turn: `turns[False]` without a drafter, `turns[True]` with."""

    prompt: Prompt
    turns: dict[bool, list[Answered]] = field(default_factory=lambda: {False: [], True: []})

    @property
    def difference(self) -> Figures | None:
        """The first token that drafting changed; None when it changed none."""
        for off, on in zip(self.turns[False], self.turns[True], strict=True):
            if _said(off) != _said(on):
                at = _first_difference(off.tokens, on.tokens)
                return {
                    "prompt": self.prompt.text,
                    "position": at - off.finished.prompt_tokens,
                    "off": next(iter(off.tokens[at : at + 1]), None),
                    "on": next(iter(on.tokens[at : at + 1]), None),
                }
        return None

    def decoded(self, drafting: bool) -> tuple[int, float]:
        """Tokens after the first, and seconds, of the fastest turn."""
        turns = [each.finished for each in self.turns[drafting]]
        fastest = min(turns, key=lambda turn: turn.decode_seconds)
        return max(fastest.new_tokens - 1, 0), fastest.decode_seconds

    def read(self, drafting: bool) -> tuple[int, float]:
        """Tokens of the prompt, and seconds, of the fastest turn."""
        turns = [each.finished for each in self.turns[drafting]]
        return turns[0].prompt_tokens, min(turn.prefill_seconds for turn in turns)


def figures_of(pairs: Sequence[Pair], synthetic: bool) -> Figures:
    """Speeds, what drafting did, and whether it changed anything, of some prompts together.

    synthetic: acceptance was drawn at random, so that answers cannot be compared.
    """
    off, on = (_speed([pair.decoded(drafting) for pair in pairs]) for drafting in (False, True))
    prompts = [_speed([pair.read(drafting) for pair in pairs]) for drafting in (False, True)]
    differences = [] if synthetic else [found for pair in pairs if (found := pair.difference)]
    return {
        "off_tps": off,
        "on_tps": on,
        "speedup": quotient(on, off),
        "prompt_off_tps": prompts[0],
        "prompt_on_tps": prompts[1],
        "prompt_ratio": quotient(prompts[1], prompts[0]),
        **_account(pairs, off),
        "identical": None if synthetic else not differences,
        "first_difference": differences[0] if differences else None,
    }


def quotient(one: float, two: float) -> float:
    """0.0 where nothing can be divided by."""
    return one / two if two > 0 else 0.0


def _account(pairs: Sequence[Pair], off_tps: float) -> Figures:
    """What drafting did in all turns of all answers.

    drafting_over_step: seconds of a pass that the model itself did not take (guessing, observing,
    sampling, bookkeeping), over those of a step of plain decoding.
    """
    total = Speculation("")
    for pair in pairs:
        for each in pair.turns[True]:
            if each.finished.speculation is not None:
                total = total.plus(each.finished.speculation)
    seconds = {
        name.removeprefix("seconds_"): value
        for name, value in total._asdict().items()
        if name.startswith("seconds_")
    }
    beside = sum(seconds.values()) - seconds["verify"]
    return {
        "drafting_over_step": quotient(beside * off_tps, total.steps),
        "mean_accepted": total.mean_accepted,
        "acceptance": total.acceptance,
        "per_position": list(total.per_position),
        "histogram": list(total.histogram),
        "widths": list(total.widths),
        "seconds": seconds,
    }


def _speed(turns: Sequence[tuple[int, float]]) -> float:
    return quotient(sum(tokens for tokens, _ in turns), sum(seconds for _, seconds in turns))


def _said(answered: Answered) -> tuple[tuple[int, ...], str, int]:
    return answered.tokens, answered.text, answered.finished.new_tokens


def _first_difference(one: Sequence[int], two: Sequence[int]) -> int:
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))
