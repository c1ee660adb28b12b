"""What drafting brings: the same answers with and without it, in turns, from one loaded model.

A machine that is shared is never equally fast for long. So every answer is timed right beside its
counterpart, they change places from turn to turn, and of several turns the fastest counts: noise
only ever adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple

from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Finished, Progress, Speculation, Text
from turbodflash_engine.info import DraftInfo
from turbodflash_engine.loading import Loaded, load
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions
from turbodflash_engine.session import Session

CONTEXT = 2048
PROMPT = 512
PROMPT_TURNS = 5
TOKENS = 128
WARM_UP = 24
"""Tokens answered before the clock starts: passes of every width are captured by then."""

Report = Callable[[Progress], None]
Figures = dict[str, Any]


class Prompt(NamedTuple):
    """What is asked, and the kind of text that answers it."""

    kind: str
    text: str


class Answered(NamedTuple):
    """One answer. tokens: all but the last of prompt and answer."""

    finished: Finished
    tokens: tuple[int, ...]
    text: str


def measure_speculation(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    progress: Report | None = None,
    *,
    tokens: int = TOKENS,
    repeats: int = 2,
    thinking: bool | None = None,
) -> Figures:
    """Answer every prompt greedily with drafting off and on, `repeats` times in turns.

    Overall and by kind of text: tokens a second (the first one left out) and their quotient; for
    prompts the same, overall from a long one read in turns, by kind from the prompts themselves;
    tokens a pass, acceptance, and whether the answers are identical, else where they first
    differ; None when acceptance is synthetic. Raises what `open_session` raises, and BadUsage
    where nobody drafts.
    """
    if options.spec is None:
        raise BadUsage("there is nothing to compare: no drafter was asked for")
    report = progress or (lambda event: None)
    loaded = load(replace(options, context=options.context or CONTEXT), progress)
    bench = _Bench(Rivals.of(loaded, options), list(prompts), report, tokens, thinking)
    return bench.figures(repeats)


@dataclass(slots=True)
class Rivals:
    """One model, with a drafter and without; either answers as if it had never been asked."""

    loaded: Loaded
    drafter: Drafter
    off: Session
    on: Session

    @classmethod
    def of(cls, loaded: Loaded, options: LoadOptions) -> Rivals:
        """Both sessions over what was loaded."""
        assert loaded.drafter is not None
        parts, info = (loaded.model, loaded.tokenizer, loaded.template), loaded.info
        chunk = min(options.batch, options.ubatch)
        off = Session(*parts, info._replace(draft=None), chunk=chunk)
        on = Session(*parts, info, loaded.drafter, chunk, options.spec)
        return cls(loaded, loaded.drafter, off, on)

    @property
    def draft(self) -> DraftInfo:
        draft = self.loaded.info.draft
        assert draft is not None
        return draft

    def answer(self, drafting: bool, prompt: str, options: SayOptions) -> Answered:
        """A chat's answer to a first message."""
        session = self._fresh(drafting)
        return _heard(session, session.chat([{"role": "user", "content": prompt}], options))

    def read(self, drafting: bool, text: str) -> Finished:
        """Reads a text and says nothing."""
        session = self._fresh(drafting)
        return _heard(session, session.complete(text, SayOptions(max_tokens=0))).finished

    def _fresh(self, drafting: bool) -> Session:
        self.loaded.model.cache.truncate(0)
        self.drafter.truncate(0)
        return self.on if drafting else self.off


def _heard(session: Session, events: Iterator[Any]) -> Answered:
    text = "".join(event.piece for event in events if isinstance(event, Text))
    assert session.last is not None
    return Answered(session.last, session.held, text)


@dataclass(slots=True)
class _Pair:
    """A prompt's answers, turn by turn."""

    prompt: Prompt
    off: list[Answered] = field(default_factory=list)
    on: list[Answered] = field(default_factory=list)

    def seconds(self, drafting: bool) -> float:
        return min(each.finished.decode_seconds for each in self._turns(drafting))

    def counted(self, drafting: bool) -> int:
        """Tokens that those seconds brought."""
        return max(self._turns(drafting)[0].finished.new_tokens - 1, 0)

    def prompt_seconds(self, drafting: bool) -> float:
        return min(each.finished.prefill_seconds for each in self._turns(drafting))

    @property
    def prompt_tokens(self) -> int:
        return self.off[0].finished.prompt_tokens

    @property
    def difference(self) -> Figures | None:
        """The first token that drafting changed; None when it changed none."""
        for off, on in zip(self.off, self.on, strict=True):
            same = (off.tokens, off.text) == (on.tokens, on.text)
            if not same or off.finished.new_tokens != on.finished.new_tokens:
                at = _first_difference(off.tokens, on.tokens)
                return {
                    "prompt": self.prompt.text,
                    "position": at - off.finished.prompt_tokens,
                    "off": next(iter(off.tokens[at : at + 1]), None),
                    "on": next(iter(on.tokens[at : at + 1]), None),
                }
        return None

    def _turns(self, drafting: bool) -> list[Answered]:
        return self.on if drafting else self.off


class _Bench:
    def __init__(
        self,
        rivals: Rivals,
        prompts: Sequence[Prompt],
        report: Report,
        tokens: int,
        thinking: bool | None,
    ) -> None:
        self._rivals, self._report = rivals, report
        self._pairs = [_Pair(prompt) for prompt in prompts]
        self._synthetic = rivals.draft.synthetic
        self._say = SayOptions(
            max_tokens=tokens,
            sample=SampleOptions(temp=0.0, seed=0, ignore_eos=self._synthetic),
            thinking=thinking,
        )
        self._done = self._all = 0

    def figures(self, repeats: int) -> Figures:
        self._all = 2 * (repeats * len(self._pairs) + PROMPT_TURNS)
        self._warm_up()
        prompt = self._prompt_speeds()
        for turn in range(repeats):
            for index, pair in enumerate(self._pairs):
                for drafting in _order(turn + index):
                    answered = self._rivals.answer(drafting, pair.prompt.text, self._say)
                    (pair.on if drafting else pair.off).append(answered)
                    self._step()
        kinds = dict.fromkeys(pair.prompt.kind for pair in self._pairs)
        draft, info = self._rivals.draft, self._rivals.loaded.info
        return {
            "model": info.name,
            "device": info.device,
            "draft": str(draft.path) if draft.path else None,
            "draft_kind": draft.kind,
            "n_max": draft.longest,
            "draft_bytes": sum(draft.memory),
            "tokens": self._say.max_tokens,
            "repeats": repeats,
            "synthetic": self._synthetic,
            **self._summed(self._pairs),
            **prompt,
            "kinds": {
                kind: self._summed([each for each in self._pairs if each.prompt.kind == kind])
                for kind in kinds
            },
        }

    def _warm_up(self) -> None:
        brief = replace(self._say, max_tokens=WARM_UP)
        for drafting in (False, True):
            self._rivals.answer(drafting, self._pairs[0].prompt.text, brief)

    def _prompt_speeds(self) -> Figures:
        """A long prompt, with the drafter watching and without."""
        text, speeds = self._long_prompt(), {False: [0.0], True: [0.0]}
        for turn in range(-1, PROMPT_TURNS):
            for drafting in _order(turn):
                finished = self._rivals.read(drafting, text)
                if turn >= 0:  # the one before only captures the passes
                    speeds[drafting].append(finished.prompt_tokens_per_second)
                    self._step()
        off, on = speeds[False][1:], speeds[True][1:]
        return {
            "prompt_tokens": finished.prompt_tokens,
            "prompt_off_tps": max(off),
            "prompt_on_tps": max(on),
            "prompt_ratio": median(a / b for a, b in zip(on, off, strict=True)),
        }

    def _long_prompt(self) -> str:
        """Text of about `PROMPT` tokens, or of what the context holds."""
        session, info = self._rivals.off, self._rivals.loaded.info
        words = " ".join(pair.prompt.text for pair in self._pairs).split(" ")
        wanted = min(PROMPT, info.context // 2)
        text = " ".join(words)
        for _ in range(wanted):
            if session.count(text) >= wanted:
                break
            text = f"{text} {text}"
        words = text.split(" ")
        low, high = 1, len(words)
        while low < high:
            middle = (low + high) // 2
            if session.count(" ".join(words[:middle])) < wanted:
                low = middle + 1
            else:
                high = middle
        return " ".join(words[:low])

    def _summed(self, pairs: Sequence[_Pair]) -> Figures:
        did = self._speculation(pairs)
        off, on = (self._speed(pairs, drafting) for drafting in (False, True))
        prompt_off, prompt_on = (
            _quotient(
                sum(pair.prompt_tokens for pair in pairs),
                sum(pair.prompt_seconds(drafting) for pair in pairs),
            )
            for drafting in (False, True)
        )
        differences = [] if self._synthetic else [d for pair in pairs if (d := pair.difference)]
        return {
            "off_tps": off,
            "on_tps": on,
            "speedup": _quotient(on, off),
            "prompt_off_tps": prompt_off,
            "prompt_on_tps": prompt_on,
            "prompt_ratio": _quotient(prompt_on, prompt_off),
            "mean_accepted": did.mean_accepted,
            "acceptance": did.acceptance,
            "per_position": list(did.per_position),
            "histogram": list(did.histogram),
            "widths": list(did.widths),
            "seconds": {
                name.removeprefix("seconds_"): value
                for name, value in did._asdict().items()
                if name.startswith("seconds_")
            },
            "identical": None if self._synthetic else not differences,
            "first_difference": differences[0] if differences else None,
        }

    def _speed(self, pairs: Sequence[_Pair], drafting: bool) -> float:
        counted = sum(pair.counted(drafting) for pair in pairs)
        return _quotient(counted, sum(pair.seconds(drafting) for pair in pairs))

    def _speculation(self, pairs: Sequence[_Pair]) -> Speculation:
        """All turns of all answers together."""
        total = Speculation(self._rivals.draft.kind)
        for pair in pairs:
            for each in pair.on:
                if each.finished.speculation is not None:
                    total = total.plus(each.finished.speculation)
        return total

    def _step(self) -> None:
        self._done += 1
        self._report(Progress("measuring", self._done, self._all, "answers"))


def _order(turn: int) -> tuple[bool, bool]:
    """Who goes first changes."""
    return (True, False) if turn % 2 else (False, True)


def _first_difference(one: Sequence[int], two: Sequence[int]) -> int:
    pairs = enumerate(zip(one, two, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(two)))


def _quotient(one: float, two: float) -> float:
    return one / two if two > 0 else 0.0
