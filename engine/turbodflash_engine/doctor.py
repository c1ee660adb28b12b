"""Why a drafter is rarely right: what is known to go wrong with a pair, tried one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from turbodflash_engine.drafters._base import Draft, Drafter, Rows
from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Progress, Speculation
from turbodflash_engine.loading import load
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.options import LoadOptions, SampleOptions, SayOptions, SpecOptions
from turbodflash_engine.pairing import open_draft
from turbodflash_engine.speculating import CONTEXT, Prompt, Rivals

TOKENS = 32
WIDE = 256
"""More than any drafter drafts: all of each draft is verified, so that all of it is judged."""

BETTER = 1.1
"""A change that brings so many times the tokens a pass has found something."""

LOW = 1.3
"""Tokens a pass below which a draft hardly fits its target, whatever the reason."""

ORDINARY = 1
"""`tokenizer.ggml.token_type` of tokens that are text."""

Report = Callable[[Progress], None]


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


def diagnose(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    progress: Report | None = None,
    *,
    tokens: int = TOKENS,
    thinking: bool | None = None,
) -> Diagnosis:
    """Answer the prompts with a draft as it is, and changed in ways in which it may be wrong.

    The options name a draft's file, else BadUsage. What does not fit at all raises as
    `open_session` does.
    """
    if options.spec is None or options.spec.model is None:
        raise BadUsage("there is no draft to look at", hint="give its file: -md draft.gguf")
    spec = replace(options.spec, width=WIDE, tree=0, synth_rates=())
    options = replace(options, spec=spec, context=options.context or CONTEXT)
    loaded = load(options, progress)
    trials = _Trials(
        Rivals.of(loaded, options), options, list(prompts), progress or _silent, tokens
    )
    base = trials.account(thinking)
    checks = [
        Check("pairing", False, "vocabulary, width, layers, mask token and shared parts fit"),
        *trials.layer_ids(base, thinking),
        *_of_the_file(spec, loaded.model.shared.embedding_scale),
        *trials.thoughts(base, thinking),
        _overall(base),
    ]
    first = [{"role": "user", "content": prompts[0].text}]
    return Diagnosis(
        draft_kind=base.drafter,
        template=trials.template(thinking),
        example=loaded.template.render(first, enable_thinking=thinking),
        checks=tuple(checks),
        speculation=base,
    )


class Shifted:
    """A drafter that is shown the inputs of other layers than it asks for."""

    def __init__(self, drafter: Drafter, by: int) -> None:
        self._drafter = drafter
        self.taps = tuple(tap + by for tap in drafter.taps)

    @property
    def name(self) -> str:
        return self._drafter.name

    @property
    def longest(self) -> int:
        return self._drafter.longest

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


@dataclass(slots=True)
class _Trials:
    """Answers to the prompts under one change after another."""

    rivals: Rivals
    options: LoadOptions
    prompts: Sequence[Prompt]
    report: Report
    tokens: int
    done: int = 0

    def account(self, thinking: bool | None, by: int = 0) -> Speculation:
        """What drafting did in all answers, with taps moved `by` layers."""
        rivals = self.rivals
        if by:
            shifted = Shifted(rivals.drafter, by)
            rivals = Rivals.of(rivals.loaded._replace(drafter=shifted), self.options)
        say = SayOptions(
            max_tokens=self.tokens, sample=SampleOptions(temp=0.0, seed=0), thinking=thinking
        )
        total = Speculation(self.rivals.draft.kind)
        for prompt in self.prompts:
            finished = rivals.answer(True, prompt.text, say).finished
            if finished.speculation is not None:
                total = total.plus(finished.speculation)
            self.done += 1
            self.report(Progress("diagnosing", self.done, 0, "answers"))
        return total

    def layer_ids(self, base: Speculation, thinking: bool | None) -> list[Check]:
        """Ids that are off by one still draft, only worse."""
        taps, layers = self.rivals.drafter.taps, self.rivals.loaded.model.shared.layers
        if not taps:
            return []
        tried = [by for by in (-1, 1) if all(0 <= tap + by < layers for tap in taps)]
        found = {by: self.account(thinking, by) for by in tried}
        best = max(found, key=lambda by: found[by].mean_accepted, default=0)
        ids = ", ".join(map(str, taps))
        shown = "".join(f"; {by:+d}: {did.mean_accepted:.2f}" for by, did in found.items())
        if best and _better(found[best], base):
            words = f"moved by {best:+d} the draft is right more often: its ids are off by one"
            return [Check("layer ids", True, f"{ids}: {base.mean_accepted:.2f}{shown}; {words}")]
        return [Check("layer ids", False, f"{ids}: {base.mean_accepted:.2f} tokens a pass{shown}")]

    def thoughts(self, base: Speculation, thinking: bool | None) -> list[Check]:
        """A draft that was trained without thoughts does not foresee them, and the other way."""
        if not self.rivals.loaded.template.supports_thinking:
            return [Check("thinking", False, "the template knows no thoughts")]
        now = thinking is not False
        other = self.account(not now)
        pair = {now: base, not now: other}
        words = f"on {pair[True].mean_accepted:.2f}, off {pair[False].mean_accepted:.2f}"
        if _better(other, base):
            advice = f"--reasoning {'off' if now else 'on'}"
            return [Check("thinking", True, f"{words} tokens a pass; use {advice}")]
        return [Check("thinking", False, f"{words} tokens a pass")]

    def template(self, thinking: bool | None) -> str:
        """Which template was used, in words."""
        if self.options.chat_template is not None:
            name = "one given with --chat-template"
        else:
            own = self.rivals.loaded.info.has_template
            name = "the model's own" if own else "ChatML, for the model has none"
        if not self.rivals.loaded.template.supports_thinking:
            return name
        return f"{name}, thinking {'off' if thinking is False else 'on'}"


def _of_the_file(spec: SpecOptions, scale: float) -> list[Check]:
    """What a block draft's file says of itself. scale: what the model multiplies embeddings by."""
    draft = open_draft(spec, lambda nbytes: None)
    assert draft is not None
    with draft.file:
        if not isinstance(draft.config, BlockConfig):
            return []
        checks = [_mask_token(draft.file.metadata, draft.config.mask)]
        if "token_embd.weight" not in draft.tensors:
            checks.append(_embedding_scale(draft.config.embedding_scale, scale))
        return checks


def _mask_token(metadata: Metadata, mask: int) -> Check:
    """The mask stands for what is to be guessed: no token that is text."""
    tokens = metadata.root.get("tokenizer.ggml.tokens", [])
    types = metadata.root.get("tokenizer.ggml.token_type", [])
    shown = f"{mask} {str(tokens[mask])!r}" if mask < len(tokens) else str(mask)
    named = [at for at, each in enumerate(tokens) if "mask" in str(each).lower()]
    if mask >= len(types) or types[mask] != ORDINARY or mask in named:
        return Check("mask token", False, shown)
    others = ", ".join(f"{at} {tokens[at]!r}" for at in named[:3])
    advice = f"; the vocabulary has {others}" if others else ""
    return Check("mask token", True, f"{shown} is ordinary text{advice}")


def _embedding_scale(own: float, models: float) -> Check:
    """Embeddings taken from a model that multiplies them must be multiplied here too."""
    words = f"the model's embeddings are shared; it multiplies them by {models:g}, the draft by"
    return Check("embedding scale", models != 1 and own == 1, f"{words} {own:g}")


def _overall(base: Speculation) -> Check:
    words = f"{base.mean_accepted:.2f} tokens a pass over {base.steps} passes"
    low = base.mean_accepted < LOW
    return Check("acceptance", low, words + ("; this draft hardly fits its target" if low else ""))


def _better(other: Speculation, base: Speculation) -> bool:
    return other.mean_accepted > BETTER * base.mean_accepted


def _silent(progress: Progress) -> None:
    """Nobody watches."""
