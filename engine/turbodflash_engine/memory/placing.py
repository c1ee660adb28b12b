"""Which part of a model lies where: pure arithmetic over what it needs.

A card takes layers from the end, the head first: so the residual rows cross over once. The
embedding goes with the last of them, when everything is on the card.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from turbodflash_engine.info import Memory
from turbodflash_engine.memory.needs import KINDS, Needs, by_kind

HOST, CARD = "host", "card"

CACHE_KINDS = ("all positions", "window", "recurrent")


class Load(NamedTuple):
    """What is loaded together."""

    model: Needs
    draft: Needs | None = None

    @property
    def everything(self) -> int:
        """The number of layers, as `-ngl` counts them, that puts all of the model on the card."""
        return self.model.layers + 1


class Split(NamedTuple):
    """layers: of the model on the card, its head counted as one; draft: whether it is there too."""

    layers: int = 0
    draft: bool = False


NO_CARD = Split()


class Share(NamedTuple):
    """Bytes at one place.

    owner: "model" or "draft". kind: of a matrix; or "cache: " and the kind of its layers, "scratch"
    or "process", which is the tokenizer and libraries.
    """

    place: str
    owner: str
    kind: str
    nbytes: int


def shares(load: Load, context: int, split: Split = NO_CARD) -> tuple[Share, ...]:
    """All that is taken, at a context of so many positions; nothing of size 0."""
    found = [*_of_model(load.model, context, min(split.layers, load.everything))]
    if load.draft:
        place = CARD if split.draft else HOST
        found += _whole("draft", load.draft, context, place)
        found += _borrowed(load, split, place)
    return tuple(share for share in found if share.nbytes)


def taken(found: Iterable[Share], place: str, owner: str = "") -> int:
    """Bytes at a place; owner: counted alone, if given."""
    return sum(s.nbytes for s in found if s.place == place and owner in ("", s.owner))


def memory_of(found: Iterable[Share], owner: str, place: str = "") -> Memory:
    """The shares of one owner, added up; place: counted alone, if given."""
    sums = {"weights": 0, "cache": 0, "scratch": 0, "host": 0}
    for share in found:
        if share.owner == owner and place in ("", share.place):
            sums[_field(share.kind)] += share.nbytes
    return Memory(**sums)


def _field(kind: str) -> str:
    if kind in KINDS:
        return "weights"
    if kind.startswith("cache"):
        return "cache"
    return "scratch" if kind == "scratch" else "host"


def _of_model(needs: Needs, context: int, layers: int) -> Iterator[Share]:
    everywhere = needs.layers + 1
    first = -1 if layers == everywhere else everywhere - layers
    on_card = needs._replace(
        pieces=tuple(piece for piece in needs.pieces if piece.layer >= first),
        caches=tuple(cache for cache in needs.caches if cache.layer >= first),
        host=0,
    )
    on_host = needs._replace(
        pieces=tuple(piece for piece in needs.pieces if piece.layer < first),
        caches=tuple(cache for cache in needs.caches if cache.layer < first),
    )
    if layers:
        yield from _whole("model", on_card, context, CARD)
        if layers < everywhere and not _has(needs, "head"):
            tied = sum(piece.nbytes for piece in needs.pieces if piece.kind == "embedding")
            yield Share(CARD, "model", "head", tied)
    if layers < everywhere:
        yield from _whole("model", on_host, context, HOST)
    else:
        yield Share(HOST, "model", "process", needs.host)


def _whole(owner: str, needs: Needs, context: int, place: str) -> Iterator[Share]:
    for kind, nbytes in by_kind(needs.pieces).items():
        yield Share(place, owner, kind, nbytes)
    for kind in CACHE_KINDS:
        kept = sum(each.nbytes(context) for each in needs.caches if each.kind == kind)
        yield Share(place, owner, f"cache: {kind}", kept)
    yield Share(place, owner, "scratch", needs.scratch.nbytes(context))
    yield Share(HOST, owner, "process", needs.host)


def _borrowed(load: Load, split: Split, place: str) -> Iterator[Share]:
    """Copies of what a draft uses of its model and what lies elsewhere."""
    lies = {
        "embedding": CARD if split.layers >= load.everything else HOST,
        "head": CARD if split.layers else HOST,
    }
    sizes = by_kind(load.model.pieces)
    tied = "head" not in sizes  # one matrix serves both
    kinds = ("embedding",) if tied else ("embedding", "head")
    if tied and place in lies.values():
        return
    for kind in kinds:
        if load.draft and kind in load.draft.borrows and lies[kind] != place:
            yield Share(place, "draft", kind, sizes.get(kind, 0))


def _has(needs: Needs, kind: str) -> bool:
    return any(piece.kind == kind for piece in needs.pieces)
