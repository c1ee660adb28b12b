"""Predicted speeds of a model and its draft on a card. Predictions, not measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from turbodflash_engine.roofline.cards import Gpu
from turbodflash_engine.roofline.passes import Cache, Pass, one_pass
from turbodflash_engine.roofline.shapes import Shape


class Drafted(NamedTuple):
    """draft: computes a block. injection: what it does with each row that the model has read.

    rows: verified in a pass. tokens_per_step: that a pass brings, the model's own counted.
    """

    draft: Shape
    injection: Shape
    rows: int
    tokens_per_step: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second, drafting off and on (None = there is no draft), and what a step costs.

    step: of plain decoding. verify, draft: passes of a step that drafts.
    """

    step: Pass
    verify: Pass | None
    draft: Pass | None
    decode_off: float
    decode_on: float | None
    prompt_off: float
    prompt_on: float | None

    @property
    def pays_from(self) -> float | None:
        """Tokens a step from which drafting is faster than plain decoding."""
        if self.verify is None or self.draft is None:
            return None
        return (self.verify.seconds + self.draft.seconds) / self.step.seconds


DRAFT_CACHE = Cache("f16", "f16")


def speeds(
    shape: Shape,
    gpu: Gpu,
    cache: Cache,
    *,
    depth: int,
    prompt: int,
    drafted: Drafted | None = None,
) -> Speeds:
    """depth: positions before the token. prompt: tokens of a prompt, read in one pass."""
    step = one_pass(shape, gpu, cache, rows=1, depth=depth)
    read = one_pass(shape, gpu, cache, rows=prompt, depth=0)
    off = Speeds(step, None, None, 1 / step.seconds, None, prompt / read.seconds, None)
    if drafted is None:
        return off
    verify = one_pass(shape, gpu, cache, rows=drafted.rows, depth=depth)
    guess = one_pass(drafted.draft, gpu, DRAFT_CACHE, rows=drafted.rows, depth=depth)
    kept = max(1, round(drafted.tokens_per_step))
    inject = one_pass(drafted.injection, gpu, DRAFT_CACHE, rows=kept, depth=0)
    inject_prompt = one_pass(drafted.injection, gpu, DRAFT_CACHE, rows=prompt, depth=0)
    seconds = verify.seconds + guess.seconds + inject.seconds
    return replace(
        off,
        verify=verify,
        draft=guess,
        decode_on=drafted.tokens_per_step / seconds,
        prompt_on=prompt / (read.seconds + inject_prompt.seconds),
    )
