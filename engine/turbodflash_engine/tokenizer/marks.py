"""What models write around their thoughts."""

from __future__ import annotations

from typing import NamedTuple


class Marks(NamedTuple):
    """The marks of one family of models.

    opening, closing: before and after a thought. interrupting: marks that end a thought too, and
    belong to the answer. again: an answer may go back to thinking; else thoughts come first.
    strays: marks that mean nothing where they stand alone.
    preserved: control tokens whose text is told all the same.
    """

    opening: str
    closing: str
    interrupting: tuple[str, ...] = ()
    again: bool = False
    strays: tuple[str, ...] = ()
    preserved: tuple[str, ...] = ()


TAGS = Marks(
    "<think>",
    "</think>",
    interrupting=("<tool_call>",),
    preserved=("<think>", "</think>", "<tool_call>", "</tool_call>"),
)
CHANNELS = Marks(
    "<|channel>thought",
    "<channel|>",
    again=True,
    strays=("<|channel>", "<channel|>"),
    preserved=("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|turn>"),
)


def marks_in(template: str) -> Marks | None:
    """Those that a chat template knows of, if it knows thoughts."""
    return next((marks for marks in (TAGS, CHANNELS) if marks.closing in template), None)
