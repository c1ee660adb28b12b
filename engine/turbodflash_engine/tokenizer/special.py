"""Cutting special tokens out of raw text, longest token first."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from turbodflash_engine.tokenizer.vocabulary import TokenType, Vocabulary

Special = tuple[str, int]
Fragment = str | int
"""Raw text that is still to be encoded, or the id of a token that was cut out."""


def specials(vocabulary: Vocabulary, types: Collection[TokenType]) -> tuple[Special, ...]:
    """Tokens of these types as (text, id), longest in bytes first, then by id."""
    of_type = re.compile(b"[" + re.escape(bytes(types)) + b"]")
    ids = (match.start() for match in of_type.finditer(vocabulary.types))
    found = [(text, id) for id in ids if (text := vocabulary.tokens[id])]
    return tuple(sorted(found, key=lambda special: -len(special[0].encode())))


def cut(text: str, by: Sequence[Special]) -> list[Fragment]:
    """Text as fragments, in order. A token that comes earlier in `by` takes its text first,
    wherever it stands: "ab", "bcd" on "abcd" gives "a", bcd if bcd is the longer one."""
    fragments: list[Fragment] = [text] if text else []
    for token, id in by:
        if token in text:
            fragments = [part for whole in fragments for part in _cut_one(whole, token, id)]
    return fragments


def _cut_one(fragment: Fragment, token: str, id: int) -> Iterator[Fragment]:
    if isinstance(fragment, int):
        yield fragment
        return
    first, *rest = fragment.split(token)
    if first:
        yield first
    for text in rest:
        yield id
        if text:
            yield text
