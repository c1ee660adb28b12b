"""The examination: every known cause of low acceptance in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from turbodflash_engine.doctor.diagnosis import Check, Diagnosis
from turbodflash_engine.doctor.trials import Shifted, Trials, better
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.errors import BadUsage
from turbodflash_engine.events import Progress, Speculation
from turbodflash_engine.loading import load
from turbodflash_engine.options import LoadOptions
from turbodflash_engine.pairing import DraftFile, draft_plan, open_draft
from turbodflash_engine.speculating import CONTEXT, Prompt, Rivals

TOKENS = 32
WIDE = 256
"""More than any drafter drafts: all of each draft is verified, so that all of it is judged."""

LOW = 1.3
"""Tokens a pass below which a draft hardly fits its target, whatever the reason."""

ORDINARY = 1
"""`tokenizer.ggml.token_type` of tokens that are text."""

MOST_MASKS = 2
"""Other tokens that are tried as the mask."""

Report = Callable[[Progress], None]


def diagnose(
    options: LoadOptions,
    prompts: Sequence[Prompt],
    progress: Report | None = None,
    *,
    tokens: int = TOKENS,
    thinking: bool | None = None,
) -> Diagnosis:
    """Answer the prompts with a draft as it is, and changed in ways in which it may be wrong.

    The options name a draft's file, else BadUsage; drafters without one are left out. What does
    not fit at all raises as `open_session` does.
    """
    options = _of_the_draft_alone(options)
    loaded = load(options, progress)
    rivals = Rivals.of(loaded, options)
    trials = Trials(rivals, options, list(prompts), tokens, thinking, progress or _silent)
    base = trials.account()
    checks = (
        Check("pairing", False, "vocabulary, width, layers, mask token and shared parts fit"),
        *_layer_ids(trials, base),
        *_of_the_file(trials, base),
        _thinking(trials, base),
        _overall(base),
    )
    first = [{"role": "user", "content": prompts[0].text}]
    example = loaded.template.render(first, enable_thinking=thinking)
    return Diagnosis(rivals.draft.kind, _template(trials), example, checks, base)


def _of_the_draft_alone(options: LoadOptions) -> LoadOptions:
    spec = options.spec
    if spec is None or spec.model is None:
        raise BadUsage("there is no draft to look at", hint="give its file: -md draft.gguf")
    types = tuple(kind for kind in spec.types if kind.startswith("draft-"))
    spec = replace(spec, types=types, width=WIDE, tree=0, synth_rates=())
    return replace(options, spec=spec, context=options.context or CONTEXT)


def _layer_ids(trials: Trials, base: Speculation) -> list[Check]:
    """Ids that are off by one still draft, only worse."""
    drafter, layers = trials.rivals.drafter, trials.rivals.loaded.model.shared.layers
    if not drafter.taps:
        return []
    tried = [by for by in (-1, 1) if all(0 <= tap + by < layers for tap in drafter.taps)]
    found = {by: trials.account(Shifted(drafter, by)) for by in tried}
    best = max(found, key=lambda by: found[by].mean_accepted, default=0)
    words = f"{', '.join(map(str, drafter.taps))}: {base.mean_accepted:.2f} tokens a pass"
    words += "".join(f"; {by:+d}: {did.mean_accepted:.2f}" for by, did in found.items())
    if best and better(found[best], base):
        words += f"; moved by {best:+d} the draft is right more often: the ids are off by one"
        return [Check("layer ids", True, words)]
    return [Check("layer ids", False, words)]


def _of_the_file(trials: Trials, base: Speculation) -> list[Check]:
    """What the file of a block draft says of itself."""
    assert trials.options.spec is not None
    draft = open_draft(trials.options.spec, lambda nbytes: None)
    assert draft is not None
    with draft.file:
        if not isinstance(draft.config, BlockConfig):
            return []
        checks = [_mask_token(trials, base, draft, draft.config)]
        if "token_embd.weight" not in draft.tensors:
            scale = trials.rivals.loaded.model.shared.embedding_scale
            checks.append(_embedding_scale(draft.config.embedding_scale, scale))
        return checks


def _mask_token(trials: Trials, base: Speculation, draft: DraftFile, config: BlockConfig) -> Check:
    """The mask stands for what is to be guessed: no token that is text, and no other one."""
    tokens = [str(each) for each in draft.file.metadata.root.get("tokenizer.ggml.tokens", [])]
    types = draft.file.metadata.root.get("tokenizer.ggml.token_type", [])
    mask = config.mask
    words = f"{mask} {tokens[mask]!r}: {base.mean_accepted:.2f} tokens a pass"
    others = [at for at, text in enumerate(tokens) if "mask" in text.lower() and at != mask]
    found = {
        other: trials.account(_built(trials, draft, config._replace(mask=other)))
        for other in others[:MOST_MASKS]
    }
    words += "".join(
        f"; {other} {tokens[other]!r}: {did.mean_accepted:.2f}" for other, did in found.items()
    )
    if any(better(did, base) for did in found.values()):
        return Check("mask token", True, f"{words}; the draft was made with another one")
    if mask < len(types) and types[mask] == ORDINARY and "mask" not in tokens[mask].lower():
        return Check("mask token", True, f"{words}; it is ordinary text")
    return Check("mask token", False, words)


def _built(trials: Trials, draft: DraftFile, config: BlockConfig) -> Drafter:
    """A second drafter from the same file, configured otherwise."""
    loaded, spec = trials.rivals.loaded, trials.options.spec
    assert spec is not None
    draft.config = config
    plan = draft_plan(trials.options, loaded.info.context)
    device = loaded.drafts_on
    drafter = draft.build(device, loaded.model.shared, plan, spec)
    device.flush()
    return drafter


def _embedding_scale(own: float, models: float) -> Check:
    """Embeddings taken from a model that multiplies them must be multiplied here too."""
    words = f"the model's embeddings are shared; it multiplies them by {models:g}, the draft by"
    return Check("embedding scale", models != 1 and own == 1, f"{words} {own:g}")


def _thinking(trials: Trials, base: Speculation) -> Check:
    """A draft that was trained without thoughts does not foresee them, and the other way."""
    if not trials.rivals.loaded.template.supports_thinking:
        return Check("thinking", False, "the template knows no thoughts")
    now = trials.thinking is not False
    other = trials.account(thinking=not now)
    pair = {now: base, not now: other}
    words = f"on {pair[True].mean_accepted:.2f}, off {pair[False].mean_accepted:.2f} tokens a pass"
    if better(other, base):
        return Check("thinking", True, f"{words}; use --reasoning {'off' if now else 'on'}")
    return Check("thinking", False, words)


def _overall(base: Speculation) -> Check:
    words = f"{base.mean_accepted:.2f} tokens a pass over {base.steps} passes"
    low = base.mean_accepted < LOW
    return Check("acceptance", low, words + ("; this draft hardly fits its target" if low else ""))


def _template(trials: Trials) -> str:
    """Which template was used, in words."""
    loaded = trials.rivals.loaded
    name = "the model's own" if loaded.info.has_template else "ChatML, for the model has none"
    if trials.options.chat_template is not None:
        name = "one given with --chat-template"
    if not loaded.template.supports_thinking:
        return name
    return f"{name}, thinking {'off' if trials.thinking is False else 'on'}"


def _silent(progress: Progress) -> None:
    """Nobody watches."""
