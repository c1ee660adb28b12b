"""DRY: "don't repeat yourself". A token that would extend a repeat pays by the repeat's length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from turbodflash_engine.sampling.candidates import Candidates

MAX_BREAKER_BYTES = 40
MAX_TAIL = 20  # tokens after the one a breaker begins in
_LARGEST_LOG = 88.7228391  # ln of the largest float32: the penalty must stay finite

Breakers = Mapping[int, Sequence[tuple[int, ...]]]
"""Token in which a breaker begins -> the token runs that complete it; () = the token is enough."""


class Spelling(Protocol):
    """What breakers need to know of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    def piece(self, token: int, /, special: bool = False) -> bytes: ...

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...

    def __hash__(self) -> int: ...


@lru_cache(maxsize=2)  # it reads the whole vocabulary
def breakers_of(spelling: Spelling, texts: tuple[str, ...]) -> Breakers:
    """Every way the vocabulary can write one of the texts, by the token in which it begins."""
    found: dict[int, set[tuple[int, ...]]] = {}
    cut = [text.encode()[:MAX_BREAKER_BYTES] for text in texts if text]
    for token in range(spelling.vocab_size):
        piece = spelling.piece(token, special=True)
        for text in cut:
            if text in piece:
                found.setdefault(token, set()).add(())
            else:
                for rest in _unfinished(piece, text):
                    found.setdefault(token, set()).add(_tail(spelling, rest))
    return {token: sorted(tails, key=len, reverse=True) for token, tails in found.items()}


def _unfinished(piece: bytes, text: bytes) -> list[bytes]:
    """What of the text is missing, for each beginning of it that the piece ends with."""
    longest = min(len(piece), len(text) - 1)
    return [text[n:] for n in range(1, longest + 1) if piece.endswith(text[:n])]


def _tail(spelling: Spelling, rest: bytes) -> tuple[int, ...]:
    text = rest.decode("utf-8", errors="replace")
    return tuple(spelling.encode(text, add_special=False, parse_special=False)[:MAX_TAIL])


def discourage_repeats(
    candidates: Candidates,
    recent: Sequence[int],
    breakers: Breakers,
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
) -> Candidates:
    """Lower each token that would extend a repeat of length L >= allowed_length.

    The penalty is multiplier * base ** (L - allowed_length). Repeats do not reach over the latest
    breaker; a token that is a breaker by itself goes free. Off at multiplier 0 or base < 1.
    """
    if multiplier == 0 or base < 1 or len(recent) <= allowed_length:
        return candidates
    reach = since_breaker(recent, breakers)
    if reach < allowed_length:
        return candidates
    max_exponent = math.floor(_LARGEST_LOG / math.log(base)) if base > 1 else len(recent)
    reach = min(reach, allowed_length + max_exponent)
    repeats = repeat_lengths(recent, reach, allowed_length)
    paying = [token for token in repeats if () not in breakers.get(token, ())]
    rows, here = candidates.rows_of(np.asarray(paying, np.int64))
    exponents = np.asarray([repeats[token] for token in paying], np.float64) - allowed_length
    logits = candidates.logits.copy()
    logits[rows[here]] -= (multiplier * base**exponents)[here]
    return candidates.adjusted(logits)


def since_breaker(recent: Sequence[int], breakers: Breakers) -> int:
    """How many of the last tokens stand after the latest complete breaker."""
    for back, token in enumerate(reversed(recent)):
        for tail in breakers.get(token, ()):
            start = len(recent) - back
            if tuple(recent[start : start + len(tail)]) == tail:
                return back - len(tail)
    return len(recent)


def repeat_lengths(recent: Sequence[int], reach: int, least: int) -> dict[int, int]:
    """Token -> length of the longest repeat it would extend: the longest run that ends before one
    of its occurrences and also ends the history. At most `reach`; those below `least` left out."""
    tokens = np.asarray(recent, np.int64)
    lengths = np.zeros(len(tokens) - 1, np.int64)  # by the row where the earlier run ends
    ends = np.arange(len(lengths))
    for length in range(reach):
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[len(tokens) - 1 - length]]
        if not len(ends):
            break
        lengths[ends] = length + 1
    longest: dict[int, int] = {}
    for end in np.flatnonzero(lengths >= least):
        token = int(tokens[end + 1])
        longest[token] = max(longest.get(token, 0), int(lengths[end]))
    return longest
