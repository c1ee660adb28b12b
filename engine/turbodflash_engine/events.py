"""What the engine says while it works. The engine says, somebody else paints."""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple


class Progress(NamedTuple):
    """Something long is under way: `done` of `total` (0 = unknown) in `unit`.

    note: what is known so far, in words for a person.
    """

    stage: str
    done: int
    total: int
    unit: str
    note: str = ""


class Started(NamedTuple):
    """The prompt is encoded; `cached_tokens` of it are still in the cache. `seed` repeats it."""

    prompt_tokens: int
    cached_tokens: int
    seed: int


class Text(NamedTuple):
    """Whole characters of the answer, or of the thinking before it."""

    piece: str
    thought: bool = False


class Verified(NamedTuple):
    """One step: so many tokens were drafted, so many of them emitted because of it."""

    drafted: int
    accepted: int


class Speculation(NamedTuple):
    """What drafting did in one answer, in tokens and passes after the prompt.

    drafter: its type as `--spec-type` spells it; of several, all of them, in the order asked.
    steps: passes of the model; each gives one token of its own. drafts: those that verified a
        draft. probes: drafts made to see whether drafting would pay again; none was verified.
    drafted: tokens handed to verification. tested: those compared, up to and with the first that
        was wrong or ended the answer. accepted: tokens emitted because they were drafted, which
        is one less than a step emits. emitted: all tokens of the steps.
    widths: passes that verified 0, 1, 2, ... drafted tokens.
    histogram: drafts of which 0, 1, 2, ... tokens were accepted.
    seconds_*: of the drafter guessing, the model's passes, the drafter observing, and the rest of
        the loop: sampling and bookkeeping.
    nbytes: memory the drafters take beside the model.
    synthetic: acceptance was drawn at random, and the text is not real.

    Always: emitted = steps + accepted, accepted <= tested <= drafted, sum(widths) = steps,
    sum(histogram) = drafts = sum(widths[1:]).
    """

    drafter: str
    steps: int = 0
    drafts: int = 0
    probes: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    emitted: int = 0
    widths: tuple[int, ...] = ()
    histogram: tuple[int, ...] = ()
    seconds_draft: float = 0.0
    seconds_verify: float = 0.0
    seconds_observe: float = 0.0
    seconds_rest: float = 0.0
    nbytes: int = 0
    synthetic: bool = False

    @property
    def mean_accepted(self) -> float:
        """Tokens a pass brought: emitted / steps, which is 1 without drafting; 0.0 of no pass."""
        return self.emitted / self.steps if self.steps else 0.0

    @property
    def acceptance(self) -> float:
        """The share of drafted tokens that was accepted; 0.0 when none was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def per_position(self) -> tuple[float, ...]:
        """For the first, second, ... drafted token, the share of drafts that got it accepted.

        They fall from position to position, and add up to accepted / drafts.
        """
        reached = [sum(self.histogram[count:]) for count in range(1, len(self.histogram))]
        return tuple(drafts / self.drafts for drafts in reached)

    def plus(self, other: Speculation) -> Speculation:
        """Both answers together: what was counted adds up, the rest is as in this one."""
        mine, others = self._asdict(), other._asdict()
        for name, value in mine.items():
            if isinstance(value, tuple):
                mine[name] = tuple(map(sum, zip_longest(value, others[name], fillvalue=0)))
            elif not isinstance(value, str | bool) and name != "nbytes":
                mine[name] = value + others[name]
        return Speculation(**mine)


class Finished(NamedTuple):
    """The last event of an answer.

    reason: "stop" (end of generation), "length" (`max_tokens`), "context" (cache full),
        "reverse-prompt" (a stop string) or "interrupted".
    prefill_seconds: from the start to the end of the prompt; decode_seconds: everything after it.
    drafted, accepted: as in Speculation. steps: passes of the model after the prompt.
    speculation: None when there is no drafter. dropped: tokens that had to leave a full context;
        those of the prompt are not among `prompt_tokens`.
    """

    reason: str
    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float
    seed: int
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    speculation: Speculation | None = None
    dropped: int = 0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Tokens computed now, those found in the cache left out; 0.0 when no time passed."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """The first token is the prompt's work, so one less is counted; 0.0 when no time passed."""
        counted = max(self.new_tokens - 1, 0)
        return counted / self.decode_seconds if self.decode_seconds > 0 else 0.0


Event = Progress | Started | Text | Verified | Finished
