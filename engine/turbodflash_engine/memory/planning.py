"""What goes where, decided before anything is loaded; what does not fit is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from turbodflash_engine.errors import DoesNotFit
from turbodflash_engine.info import Memory
from turbodflash_engine.memory.placing import (
    CARD,
    HOST,
    Load,
    Share,
    Split,
    memory_of,
    shares,
    taken,
)

STEP = 256  # contexts are whole multiples of it
LEAST_CONTEXT = 4096  # before a context is cut further, layers leave the card

ROUNDED_DOWN = 0.95  # a size that is recommended leaves something over

AUTO = -1
"""As many layers on the card as fit."""


class Room(NamedTuple):
    """Free bytes, None = unknown. has_card: there is a card, and `card` is what is free on it."""

    host: int | None
    card: int | None = None
    has_card: bool = False


class Wish(NamedTuple):
    """What a person asked for.

    context: positions; 0 = as trained. trained: positions that the model was trained on.
    layers: to go on the card, the head counted as one; AUTO = as many as fit.
    draft: whether the draft goes on the card; None = where the model's head is.
    fit: a context that nobody asked for is cut to what fits.
    """

    trained: int
    context: int = 0
    layers: int = 0
    draft: bool | None = None
    fit: bool = True

    @property
    def wanted(self) -> int:
        """Positions, in whole steps."""
        return rounded(self.context or self.trained)

    @property
    def least(self) -> int:
        """The fewest positions that will do."""
        return self.wanted if self.context or not self.fit else min(STEP, self.wanted)


class Alternative(NamedTuple):
    """Another way to load the same model. words: the options that ask for it."""

    words: str
    load: Load


class Plan(NamedTuple):
    """context: positions of the cache. notes: sentences that a person should read."""

    context: int
    split: Split
    shares: tuple[Share, ...]
    notes: tuple[str, ...] = ()

    @property
    def memory(self) -> Memory:
        """Of the model, wherever it is."""
        return memory_of(self.shares, "model")

    @property
    def draft(self) -> Memory:
        """Of the draft."""
        return memory_of(self.shares, "draft")


def plan_memory(load: Load, wish: Wish, room: Room, cheaper: Iterable[Alternative] = ()) -> Plan:
    """How much goes where. Raises DoesNotFit, and says what would fit.

    cheaper: what may be proposed when it does not, the least harmful first; looked at only then.
    """
    found = next(_fitting(load, wish, room), None)
    if found is None:
        raise _refusal(load, wish, room, cheaper)
    context, split = found
    notes = _notes_on_training(wish.context, wish.trained)
    if context < wish.wanted:
        notes += (
            f"the context is {context:,} tokens, not {wish.wanted:,}: more does not fit memory",
        )
    if wish.layers == AUTO and room.has_card and split.layers < load.everything:
        notes += (
            f"{split.layers} of {load.everything} layers are on the GPU: more does not fit it",
        )
    return Plan(context, split, shares(load, context, split), notes)


def largest_context(load: Load, split: Split, room: Room, limit: int, least: int = STEP) -> int:
    """The most positions that fit, in whole steps up to `limit`; 0 if not even `least` do."""
    low, high = least // STEP, limit // STEP
    if not fits(load, least, split, room):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(load, middle * STEP, split, room) else (low, middle - 1)
    return low * STEP


def fits(load: Load, context: int, split: Split, room: Room) -> bool:
    """Whether there is room for it all."""
    return not any(lacking(load, context, split, room).values())


def lacking(load: Load, context: int, split: Split, room: Room) -> dict[str, int]:
    """Bytes that are missing, by place."""
    found = shares(load, context, split)
    free = {HOST: room.host, CARD: room.card}
    return {
        place: max(0, taken(found, place) - amount) if amount is not None else 0
        for place, amount in free.items()
    }


def rounded(context: int) -> int:
    """A context in whole steps."""
    return -(-context // STEP) * STEP


def gib(nbytes: float) -> str:
    """In GiB; of a little, in MiB."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 / 10 else f"{nbytes / 2**20:.0f} MiB"


def splits(load: Load, wish: Wish, room: Room) -> list[Split]:
    """The ways to divide the layers that may be tried, the best first."""
    if not room.has_card:
        return [Split()]
    counts = [min(wish.layers, load.everything)]
    if wish.layers == AUTO:
        counts = list(range(load.everything, -1, -1))
    return [Split(n, n > 0 if wish.draft is None else wish.draft) for n in counts]


def _fitting(load: Load, wish: Wish, room: Room) -> Iterator[tuple[int, Split]]:
    """Contexts and splits that fit, the best first."""
    enough = max(wish.least, min(LEAST_CONTEXT, wish.wanted))
    for least in (enough, wish.least):
        for split in splits(load, wish, room):
            context = largest_context(load, split, room, wish.wanted, least)
            if context:
                yield context, split


def _notes_on_training(context: int, trained: int) -> tuple[str, ...]:
    if context <= trained:
        return ()
    return (
        f"a context of {context:,} tokens is beyond the {trained:,} that the model was trained on; "
        "quality may drop",
    )


def _refusal(load: Load, wish: Wish, room: Room, cheaper: Iterable[Alternative]) -> DoesNotFit:
    split = splits(load, wish, room)[0]
    context = wish.wanted if wish.context or not wish.fit else STEP
    found = shares(load, context, split)
    who = "the model and its draft need" if load.draft else "the model needs"
    missing = lacking(load, context, split, room)
    place = CARD if missing[CARD] else HOST
    free = room.card if place == CARD else room.host
    where = "of the GPU's memory" if place == CARD else "of memory"
    cache = sum(s.nbytes for s in found if s.place == place and s.kind.startswith("cache"))
    return DoesNotFit(
        f"{who} {gib(taken(found, place))} {where} at a context of {context:,} tokens, "
        f"{gib(cache)} of it for keys and values; {gib(free or 0)} are free, "
        f"{gib(missing[place])} too few",
        hint=_advice(load, wish, room, cheaper),
    )


def _advice(load: Load, wish: Wish, room: Room, cheaper: Iterable[Alternative]) -> str:
    found = changes(load, wish, room, cheaper)
    return f"{' or '.join(found[:2])} fits" if found else "use a smaller file of this model"


def changes(load: Load, wish: Wish, room: Room, cheaper: Iterable[Alternative] = ()) -> list[str]:
    """The single changes that would make it fit, the least harmful first, as options."""
    split = splits(load, wish, room)[0]
    found = [
        each.words
        for each in cheaper
        if next(_fitting(each.load, wish._replace(fit=False), room), None)
    ]
    context = largest_context(load, split, room, wish.wanted)
    if context:
        found.append(f"-c {context}")
    if wish.layers > 0 and room.has_card:
        for fewer in range(min(wish.layers, load.everything) - 1, -1, -1):
            if fits(load, wish.wanted, Split(fewer, split.draft and fewer > 0), room):
                found.append(f"-ngl {fewer}")
                break
    if load.draft and next(_fitting(Load(load.model), wish, room), None):
        found.append("no draft")
    return [*found, *_smaller_file(load, wish.least, split, room)]


def _smaller_file(load: Load, context: int, split: Split, room: Room) -> Iterator[str]:
    """The size of a file of the same model that would do, where there is one."""
    found, missing = shares(load, context, split), lacking(load, context, split, room)
    kept = {
        place: memory_of(found, "model", place).weights - lacks for place, lacks in missing.items()
    }
    if all(kept[place] > 0 for place, lacks in missing.items() if lacks):
        yield f"a file of this model of at most {gib(sum(kept.values()) * ROUNDED_DOWN)}"
