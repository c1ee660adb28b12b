"""The seat of a drafter, and what a kind of drafter offers."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.cache.pieces import Arrays, Pieces
from turbodflash_engine.layers.steps import Threads
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Form, Shared
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import Device

Rows = Any
"""An array of the model's device: [tokens, width]. It is passed on and never read."""


class Draft(NamedTuple):
    """What may come next, position by position.

    tokens: n best guesses. candidates, log_probs: [n, k] more of them with the drafter's
    log-probabilities, best first, for a tree; None from a drafter that has no second thoughts.
    """

    tokens: tuple[int, ...] = ()
    candidates: NDArray[np.int32] | None = None
    log_probs: NDArray[np.float32] | None = None


NO_DRAFT = Draft()
"""Nothing may be guessed."""


class Drafter(Protocol):
    """Guesses what the model will say. A guess may be wrong; it never changes the text.

    The drafter sees every token that the cache holds exactly once and in order, with the rows it
    asked for, and no token that was not kept.
    """

    @property
    def name(self) -> str:
        """The type as `--spec-type` spells it."""

    @property
    def taps(self) -> tuple[int, ...]:
        """The model's layers whose inputs it wants to see."""

    @property
    def longest(self) -> int:
        """The most tokens it drafts at once."""

    @property
    def nbytes(self) -> int:
        """Memory that it takes beside the model: weights, cache, rows kept for later."""

    def draft(self, history: Sequence[int], width: int) -> Draft:
        """At most `width` (>= 1) tokens that may follow `history`.

        Its last token was not observed yet; all before it were, and some may be forgotten. None at
        all is a good answer: the step is then plain decoding.
        """

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        """These tokens [n] now stand at these positions; `taps` has rows [n, width] per tap.

        coming: tokens of the prompt that will be observed after these, before anything is drafted.
        """

    def truncate(self, length: int) -> None:
        """Forget what was observed at positions from `length` on."""

    def forget(self, start: int, stop: int) -> None:
        """Forget positions start..stop-1, which were observed; those behind take their place.

        If it is cut short, `truncate(start)` sets things right.
        """

    @property
    def form(self) -> str:
        """What `pieces` are stored in; those of the same form and file can be resumed."""

    def pieces(self) -> Pieces:
        """All that it remembers of what was observed, beside the tokens."""

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        """Become what it was when these tokens had been observed and `pieces` was called.

        Raises KeyError or ValueError for what is no such thing; `truncate(0)` then is due.
        """


class NoDrafter:
    """Never guesses: plain decoding."""

    name = "none"
    taps: tuple[int, ...] = ()
    longest = 0
    nbytes = 0

    def draft(self, history: Sequence[int], width: int) -> Draft:
        return NO_DRAFT

    def observe(
        self, tokens: Sequence[int], positions: range, taps: Sequence[Rows], coming: int = 0
    ) -> None:
        pass

    def truncate(self, length: int) -> None:
        pass

    def forget(self, start: int, stop: int) -> None:
        pass

    form = "none"

    def pieces(self) -> Pieces:
        return {}

    def resume(self, tokens: Sequence[int], saved: Arrays) -> None:
        pass


class Setting(NamedTuple):
    """Where a drafter is built.

    target: the parts of the model that it may use as its own. plan: its own cache.
    """

    device: Device
    target: Shared
    plan: CachePlan
    options: SpecOptions


def threads_of(options: SpecOptions) -> Threads:
    """For the passes of a draft."""
    return Threads(options.threads, options.threads_batch or options.threads)


def nothing_to_note(config: Any, present: Container[str], target: Shared) -> tuple[str, ...]:
    return ()


class FileKind(NamedTuple):
    """The `PLUGIN` of a drafter that is loaded from a file.

    claims: whether a file is of this kind, given its metadata and the names of its tensors.
    read: its configuration, with `kv_shapes`, `state_bytes` and `scratch_values` as a model's has,
        and `tap_values`: of a row, how many numbers of the model it wants to see.
    check: raises BadModel unless it fits the target.
    layout: the tensors it wants, given the names that are present. build: the drafter itself.
    notes: sentences on a pair that fits, but not well; given the configuration, the names of the
        tensors and the target.
    twice: endings of the names of matrices that are packed for two uses.
    whole: it is a model by itself, with tables of its own.
    within: which tensors of a model's own file are such a draft, of these names; raises BadModel
        where there are none. None = it always has a file of its own.
    """

    claims: Callable[[Metadata, Container[str]], bool]
    read: Callable[[Metadata], Any]
    check: Callable[[Any, Form, SpecOptions], None]
    layout: Callable[[Any, Container[str]], Layout]
    build: Callable[[Any, Tensors, Setting], Drafter]
    notes: Callable[[Any, Container[str], Shared], tuple[str, ...]] = nothing_to_note
    twice: tuple[str, ...] = ()
    whole: bool = False
    within: Callable[[Metadata, Iterable[str]], list[str]] | None = None


class RuleKind(NamedTuple):
    """The `PLUGIN` of a drafter that needs no file."""

    build: Callable[[SpecOptions], Drafter]
