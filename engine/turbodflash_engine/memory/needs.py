"""What a model takes, piece by piece, whatever it is put on. All sizes are bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from turbodflash_engine.info import Memory

KINDS = ("embedding", "attention", "mlp", "experts", "head", "other")
"""Kinds of matrices, in the order in which a person reads them."""


class Piece(NamedTuple):
    """Matrices that lie together. layer: -1 = before the first, their number = after the last."""

    kind: str
    layer: int
    nbytes: int


class LayerCache(NamedTuple):
    """What one layer remembers: `fixed` in all, and `per_position` for each of its positions.

    most: the positions that it has slots for, however long the context is; 0 = all of them.
    limit: the positions that there are at most; 0 = as many as the context has.
    """

    layer: int
    per_position: float
    most: int = 0
    fixed: int = 0
    limit: int = 0

    @property
    def kind(self) -> str:
        """How a person calls it."""
        if not self.per_position:
            return "recurrent"
        return "window" if self.most else "all positions"

    def nbytes(self, context: int) -> int:
        """At a context of so many positions."""
        kept = min(context, self.most or context, self.limit or context)
        return self.fixed + round(kept * self.per_position)


class Scratch(NamedTuple):
    """What passes write and forget; part of it grows with the context."""

    fixed: int = 0
    per_position: float = 0.0

    def nbytes(self, context: int) -> int:
        return self.fixed + round(context * self.per_position)


class Needs(NamedTuple):
    """All that a model, or a draft, takes.

    layers: how many it has. scratch: wherever it computes. host: what stays in the memory of the
    process in any case, such as the tokenizer. borrows: of a draft, the kinds of matrices that it
    uses of its model, and must have where it computes.
    """

    layers: int
    pieces: tuple[Piece, ...] = ()
    caches: tuple[LayerCache, ...] = ()
    scratch: Scratch = Scratch()
    host: int = 0
    borrows: tuple[str, ...] = ()

    def memory(self, context: int) -> Memory:
        """In one place, at a context of so many positions."""
        return Memory(
            weights=sum(piece.nbytes for piece in self.pieces),
            cache=sum(cache.nbytes(context) for cache in self.caches),
            scratch=self.scratch.nbytes(context),
            host=self.host,
        )


def pieces_of(nbytes: Mapping[str, int], layers: int) -> tuple[Piece, ...]:
    """The tensors of a file by kind and layer. nbytes: by the names that GGUF gives them."""
    found: dict[tuple[str, int], int] = {}
    for name, size in nbytes.items():
        key = _kind_and_layer(name, layers)
        found[key] = found.get(key, 0) + size
    return tuple(Piece(kind, layer, size) for (kind, layer), size in sorted(found.items(), key=_at))


def by_kind(pieces: Iterable[Piece]) -> dict[str, int]:
    """Bytes of each kind, in the order of KINDS."""
    sums = dict.fromkeys(KINDS, 0)
    for piece in pieces:
        sums[piece.kind] += piece.nbytes
    return {kind: size for kind, size in sums.items() if size}


def _at(entry: tuple[tuple[str, int], int]) -> tuple[int, str]:
    (kind, layer), _ = entry
    return layer, kind


def _kind_and_layer(name: str, layers: int) -> tuple[str, int]:
    if name.startswith("token_embd"):
        return "embedding", -1
    if not name.startswith("blk."):
        return ("head" if name.startswith("output.") else "other"), layers
    _, number, part = name.split(".", 2)
    return _kind(part), int(number) if number.isdigit() else 0


def _kind(part: str) -> str:
    if "_exps" in part:
        return "experts"
    return "mlp" if part.startswith("ffn") else "attention"
