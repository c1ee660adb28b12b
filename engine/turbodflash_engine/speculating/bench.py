"""The comparison itself.

A machine that is shared is never equally fast for long. So every answer is timed right beside its
counterpart, they change places from turn to turn, and of several turns the fastest counts: noise
only ever adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Progress
from turbodflash_engine.loading import load
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions
from turbodflash_engine.session import Session
from turbodflash_engine.speculating.pairs import Figures, Pair, figures_of, quotient
from turbodflash_engine.speculating.rivals import CONTEXT, Prompt, Rivals

PROMPT = 512
PROMPT_TURNS = 9
TOKENS = 128
WARM_UP = 24
"""Tokens answered before the clock starts: passes of most widths are captured by then."""

Report = Callable[[Progress], None]


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
    where nobody drafts or nothing is asked.
    """
    if options.spec is None:
        raise BadUsage("there is nothing to compare: no drafter was asked for")
    if not prompts:
        raise BadUsage("there is nothing to compare: no prompt was given")
    report = progress or (lambda event: None)
    options = replace(options, context=options.context or CONTEXT)
    rivals = Rivals.of(load(options, progress), options)
    synthetic = rivals.draft.synthetic
    say = SayOptions(
        max_tokens=tokens,
        sample=SampleOptions(temp=0.0, seed=0, ignore_eos=synthetic),
        thinking=thinking,
    )
    return _Bench(rivals, prompts, say, report).figures(repeats)


class _Bench:
    def __init__(
        self, rivals: Rivals, prompts: Sequence[Prompt], say: SayOptions, report: Report
    ) -> None:
        self._rivals, self._say, self._report = rivals, say, report
        self._pairs = [Pair(prompt) for prompt in prompts]
        self._done = self._all = 0

    def figures(self, repeats: int) -> Figures:
        self._all = 2 * (repeats * len(self._pairs) + PROMPT_TURNS)
        self._warm_up()
        long_prompt = self._long_prompt()
        for turn in range(repeats):
            self._answer_all(turn)
        kinds: dict[str, list[Pair]] = {}
        for pair in self._pairs:
            kinds.setdefault(pair.prompt.kind, []).append(pair)
        synthetic = self._rivals.draft.synthetic
        return {
            **self._head(repeats),
            **figures_of(self._pairs, synthetic),
            **long_prompt,
            "kinds": {kind: figures_of(pairs, synthetic) for kind, pairs in kinds.items()},
        }

    def _head(self, repeats: int) -> Figures:
        draft, info = self._rivals.draft, self._rivals.loaded.info
        return {
            "model": info.name,
            "device": info.device,
            "draft": str(draft.path) if draft.path else None,
            "draft_kind": draft.kind,
            "n_max": draft.longest,
            "fallback": draft.fallback,
            "draft_bytes": sum(draft.memory),
            "tokens": self._say.max_tokens,
            "repeats": repeats,
            "synthetic": draft.synthetic,
        }

    def _warm_up(self) -> None:
        brief = replace(self._say, max_tokens=min(WARM_UP, self._say.max_tokens))
        for drafting in (False, True):
            self._rivals.answer(drafting, self._pairs[0].prompt.text, brief)

    def _answer_all(self, turn: int) -> None:
        for index, pair in enumerate(self._pairs):
            for drafting in _order(turn + index):
                answered = self._rivals.answer(drafting, pair.prompt.text, self._say)
                pair.turns[drafting].append(answered)
                self._step()

    def _long_prompt(self) -> Figures:
        """Speeds of reading, with the drafter watching and without."""
        wanted = min(PROMPT, self._rivals.loaded.info.context // 2)
        texts = [pair.prompt.text for pair in self._pairs]
        text = _text_of(self._rivals.off, texts, wanted)
        speeds: dict[bool, list[float]] = {False: [], True: []}
        tokens = 0
        for drafting in _order(0):  # captures the passes
            tokens = self._rivals.read(drafting, text).prompt_tokens
        for turn in range(PROMPT_TURNS):
            for drafting in _order(turn):
                finished = self._rivals.read(drafting, text)
                speeds[drafting].append(finished.prompt_tokens_per_second)
                self._step()
        off, on = max(speeds[False]), max(speeds[True])
        return {
            "prompt_tokens": tokens,
            "prompt_off_tps": off,
            "prompt_on_tps": on,
            "prompt_ratio": quotient(on, off),
        }

    def _step(self) -> None:
        self._done += 1
        self._report(Progress("measuring", self._done, self._all, "answers"))


def _text_of(session: Session, texts: Sequence[str], wanted: int) -> str:
    """The shortest run of whole words of these texts, over and over, that is `wanted` tokens."""
    words = " ".join(texts).split(" ")
    while session.count(" ".join(words)) < wanted:
        words += words
    low, high = 1, len(words)
    while low < high:
        middle = (low + high) // 2
        if session.count(" ".join(words[:middle])) < wanted:
            low = middle + 1
        else:
            high = middle
    return " ".join(words[:low])


def _order(turn: int) -> tuple[bool, bool]:
    """Who goes first changes."""
    return (True, False) if turn % 2 else (False, True)
