"""Text from tokens as they come: never half a character."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Container
from typing import Protocol

_Decoder = getincrementaldecoder("utf-8")


class Pieces(Protocol):
    """What is needed of a tokenizer: the bytes of one token."""

    def piece(self, id: int, special: bool = False) -> bytes: ...


class Detokenizer:
    """Joins the bytes of tokens and gives out whole characters.

    A character that is not complete yet waits for its bytes; bytes that can become none are
    U+FFFD. All pushes and the flush together are the whole answer decoded at once.
    """

    def __init__(
        self, tokenizer: Pieces, special: bool = False, preserved: Container[int] = ()
    ) -> None:
        """special: show the text of control tokens; preserved: those that are always shown."""
        self._tokenizer = tokenizer
        self._special, self._preserved = special, preserved
        self._decoder = _Decoder("replace")

    def push(self, id: int) -> str:
        """The text that token `id` completes; may be empty."""
        shown = self._special or id in self._preserved
        return self._decoder.decode(self._tokenizer.piece(id, shown))

    def flush(self) -> str:
        """What still waits, as U+FFFD: no further byte will come. Then begins anew."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
