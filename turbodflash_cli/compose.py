"""When Enter sends a message and when it adds a line to it. The same for every reader."""

from __future__ import annotations

BLOCK = '"""'


def entered(text: str, multiline: bool = False) -> tuple[bool, str]:
    """Enter was pressed after `text`: (whether it is sent, the message or the text to go on from).

    A line that ends in a backslash goes on; so does a block between triple quotes. With
    `multiline` it is the other way round: every line goes on, and a backslash sends.
    """
    if multiline:
        return (True, text[:-1]) if text.endswith("\\") else (False, f"{text}\n")
    body = text.strip()
    if body.startswith(BLOCK):
        closed = len(body) >= 2 * len(BLOCK) and body.endswith(BLOCK)
        return (True, body[3:-3].strip("\n")) if closed else (False, f"{text}\n")
    return (False, f"{text[:-1]}\n") if text.endswith("\\") else (True, text)
