"""The bytes that a token stands for."""

from __future__ import annotations

import re
from collections.abc import Callable

from turbodflash_engine.tokenizer.vocabulary import SPACE, TokenType, Vocabulary

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_VERBATIM = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)


def decoder_of(vocabulary: Vocabulary) -> Callable[[int], bytes]:
    """A function from a token's id to its bytes, control tokens shown as their text."""
    normal = _from_printable if vocabulary.model == "gpt2" else _from_escaped

    def bytes_of(id: int) -> bytes:
        text, type = vocabulary.tokens[id], vocabulary.types[id]
        if type in _VERBATIM:
            return _encode(text)
        if type == TokenType.NORMAL:
            return normal(text)
        if type == TokenType.BYTE:
            return _from_hex(text)
        return b""

    return bytes_of


def _byte_alphabet() -> dict[str, bytes]:
    """The printable character that stands for each byte in byte-level vocabularies: visible
    Latin-1 characters for themselves, the others in order from U+0100."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in visible)
    characters = {byte: chr(byte) for byte in visible}
    characters |= {byte: chr(0x100 + at) for at, byte in enumerate(others)}
    return {character: bytes([byte]) for byte, character in characters.items()}


_BYTE_OF = _byte_alphabet()


def _from_printable(text: str) -> bytes:
    return b"".join(_BYTE_OF.get(character) or _encode(character) for character in text)


def _from_escaped(text: str) -> bytes:
    return _encode(text.replace(SPACE, " "))


def _from_hex(text: str) -> bytes:
    match = _BYTE.fullmatch(text)
    return bytes([int(match[1], 16)]) if match else _encode(text)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
