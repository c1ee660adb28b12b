"""Encoding on raw characters: SentencePiece by score (the llama model) and gemma4 by merges.

Both write spaces as U+2581 and fall back to the bytes of a character that is no token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from turbodflash_engine.tokenizer.merging import Cost, PartEncoder, ranks
from turbodflash_engine.tokenizer.vocabulary import SPACE, Vocabulary

_LINES = re.compile(r"[^\n]+|\n+")


class SentencePieceEncoder:
    """Neighbours merge when together they are a token, the highest score first."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        token_of, scores = vocabulary.ids.get, vocabulary.scores

        def cost(left: str, right: str) -> float | None:
            id = token_of(left + right)
            return None if id is None else -scores[id]

        self._words = _Words(vocabulary, cost)

    def __call__(self, text: str) -> list[int]:
        return self._words(text.replace(" ", SPACE))


class GemmaEncoder:
    """Neighbours merge by rank, inside a line; a run of newlines that is a token is taken whole."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids, rank_of = vocabulary.ids, ranks(vocabulary.merges).get

        def cost(left: str, right: str) -> float | None:
            rank = rank_of(f"{left} {right}")
            return rank if left + right in ids else None

        self._ids = ids
        self._words = _Words(vocabulary, cost)

    def __call__(self, text: str) -> list[int]:
        lines = _LINES.findall(text.replace(" ", SPACE))
        return [id for line in lines for id in self._encode(line)]

    def _encode(self, line: str) -> list[int]:
        if line[0] == "\n" and line in self._ids:
            return [self._ids[line]]
        return self._words(line)


class _Words:
    """Encodes text word by word, where merges cannot reach from one word into the next, so that
    words seen before need no merging. Every merge must make a token of the vocabulary."""

    def __init__(self, vocabulary: Vocabulary, cost: Cost) -> None:
        self._encode = PartEncoder(cost, _Speller(vocabulary), whole={})
        self._split = re.compile(_word(vocabulary.tokens), re.DOTALL).findall

    def __call__(self, text: str) -> list[int]:
        return [id for word in self._split(text) for id in self._encode(word)]


def _word(tokens: Iterable[str]) -> str:
    """Words begin at a space, except after a character that some token has before its space:
    there a merge may reach across."""
    bridges = {
        token[at - 1]
        for token in tokens
        if SPACE in token[1:]
        for at in range(1, len(token))
        if token[at] == SPACE
    }
    across = "".join(re.escape(character) for character in sorted(bridges))
    bridged = rf"|(?<=[{across}]){SPACE}" if across else ""
    return rf".(?:[^{SPACE}]{bridged})*"


class _Speller:
    """The ids of one symbol: its own, else those of its bytes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids = vocabulary.ids
        unknown = [] if vocabulary.unknown_id < 0 else [vocabulary.unknown_id]
        self._byte = [
            next(([self._ids[name]] for name in _names(byte) if name in self._ids), unknown)
            for byte in range(256)
        ]

    def __call__(self, symbol: str) -> list[int]:
        id = self._ids.get(symbol)
        if id is not None:
            return [id]
        return [id for byte in symbol.encode() for id in self._byte[byte]]


def _names(byte: int) -> tuple[str, ...]:
    """How a vocabulary may write a byte; only an ASCII byte is a character by itself."""
    return (f"<0x{byte:02X}>", chr(byte)) if byte < 0x80 else (f"<0x{byte:02X}>",)
