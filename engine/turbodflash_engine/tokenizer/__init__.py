"""Text to tokens and back, by the vocabulary that a model file carries.

vocabulary.py     the file's tokens, types and special ids     eog.py   what ends an answer
special.py        cutting special tokens out of text           pre.py   word splits by name
bpe.py            gpt2: words, then merges                     stream.py  text as tokens come
sentencepiece.py  llama and gemma4, on merging.py's loop       chat.py  messages to a prompt
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turbodflash_engine.tokenizer.pieces import decoder_of
from turbodflash_engine.tokenizer.sentencepiece import GemmaEncoder, SentencePieceEncoder
from turbodflash_engine.tokenizer.special import Special, cut, specials
from turbodflash_engine.tokenizer.stream import Detokenizer
from turbodflash_engine.tokenizer.vocabulary import (
    NOTHING,
    Metadata,
    TokenType,
    Vocabulary,
    read_vocabulary,
)

__all__ = ["NOTHING", "Detokenizer", "TokenType", "Tokenizer", "load_tokenizer"]

Encoder = Callable[[str], list[int]]
"""Ids of raw text that holds no special token."""


def load_tokenizer(meta: Metadata) -> Tokenizer:
    """The tokenizer of a model file; BadModel if it is of an unknown kind or damaged."""
    vocabulary = read_vocabulary(meta)
    return Tokenizer(vocabulary, _encoder(vocabulary))


def _encoder(vocabulary: Vocabulary) -> Encoder:
    if vocabulary.model == "llama":
        return SentencePieceEncoder(vocabulary)
    if vocabulary.model == "gemma4":
        return GemmaEncoder(vocabulary)
    from turbodflash_engine.tokenizer.bpe import BytePairEncoder  # its library loads in 50 ms

    return BytePairEncoder(vocabulary)


class Tokenizer:
    """Encodes text and decodes tokens. Ids of special tokens a model lacks are `NOTHING` (-1)."""

    def __init__(self, vocabulary: Vocabulary, encode: Encoder) -> None:
        self._vocabulary = vocabulary
        self._encode = encode
        self._bytes_of = decoder_of(vocabulary)
        self._pieces: dict[int, bytes] = {}
        always = (TokenType.USER_DEFINED,)
        self._user_defined = specials(vocabulary, always)
        self._all_special = specials(vocabulary, (*always, TokenType.CONTROL, TokenType.UNKNOWN))

        self.vocab_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.eot_id = vocabulary.eot_id
        self.eom_id = vocabulary.eom_id
        self.unknown_id = vocabulary.unknown_id
        self.padding_id = vocabulary.padding_id
        self.mask_id = vocabulary.mask_id
        self.add_bos = vocabulary.add_bos and vocabulary.bos_id != NOTHING
        self.add_eos = vocabulary.add_eos and vocabulary.eos_id != NOTHING
        self.eog = vocabulary.eog
        self.suppress = vocabulary.suppress

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of any text.

        add_special: begin with BOS and end with EOS where the model wants them.
        parse_special: the text of a control token is that token; else it is text like any other.
        User-defined tokens are always recognised. What is no character (half a surrogate pair)
        becomes U+FFFD.
        """
        special = self._all_special if parse_special else self._user_defined
        ids = self._encode_fragments(_characters(text), special)
        if add_special and self.add_bos:
            ids.insert(0, self.bos_id)
        if add_special and self.add_eos:
            ids.append(self.eos_id)
        return ids

    def _encode_fragments(self, text: str, special: tuple[Special, ...]) -> list[int]:
        ids: list[int] = []
        prefix = " " if self._vocabulary.add_space_prefix else ""
        before = prefix
        for fragment in cut(text, special):
            if isinstance(fragment, int):
                ids.append(fragment)
                before = prefix
            else:
                ids += self._encode(before + fragment)
                before = ""
        return ids

    def piece(self, id: int, special: bool = False) -> bytes:
        """The bytes of one token; control and unknown tokens have none unless `special`."""
        if not special and self._vocabulary.types[id] in _HIDDEN:
            return b""
        known = self._pieces.get(id)
        if known is None:
            known = self._pieces[id] = self._bytes_of(id)
        return known

    def decode(self, ids: Iterable[int], special: bool = True) -> bytes:
        """The bytes of many tokens: their pieces joined, nothing stripped or cleaned."""
        return b"".join(self.piece(id, special) for id in ids)

    def token_text(self, id: int) -> str:
        """A token as the vocabulary writes it, or "" for `NOTHING`."""
        return "" if id == NOTHING else self._vocabulary.tokens[id]

    def control(self, id: int) -> bool:
        """Whether a token steers the conversation and is not part of its text."""
        return self._vocabulary.types[id] == TokenType.CONTROL


_HIDDEN = (TokenType.CONTROL, TokenType.UNKNOWN)


def _characters(text: str) -> str:
    """Text without surrogates: pairs joined to their character, lone ones U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
