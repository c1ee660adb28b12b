"""Which tokens end an answer: those the file names, and those whose text says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001  (the token's own full-width bars)
    "<end_of_utterance>",
)
_END_OF_MESSAGE = ("<|eom_id|>",)
_END_OF_GENERATION = (
    *_END_OF_TURN,
    *_END_OF_MESSAGE,
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
)
_FILL_IN_THE_MIDDLE = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}


class Ends(NamedTuple):
    """ids: the end-of-generation set; control: tokens that become control tokens;
    plain: the token that becomes a normal one, or -1; eot_id, eom_id: -1 if there is none."""

    ids: frozenset[int]
    control: frozenset[int]
    plain: int
    eot_id: int
    eom_id: int


def find_ends(ids: Mapping[str, int], special: Mapping[str, int]) -> Ends:
    """What ends an answer, from token texts and from the file's special ids (-1 = not given)."""
    eot = _named_or_found(ids, special["eot"], _END_OF_TURN)
    eom = _named_or_found(ids, special["eom"], _END_OF_MESSAGE)
    by_text = {ids[text] for text in _END_OF_GENERATION if text in ids}
    for key, texts in _FILL_IN_THE_MIDDLE.items():
        by_text |= {special[key]} if special[key] >= 0 else {ids[t] for t in texts if t in ids}
    every = by_text | {id for id in (special["eos"], eot, eom) if id >= 0}

    plain = -1
    if "<|tool_response>" in ids and "</s>" in ids:
        plain = ids["</s>"]  # there an HTML tag, struck through
    if _ends_by_call(ids):
        every.discard(ids.get("<|end|>", -1))
    return Ends(
        ids=frozenset(every - {plain}),
        control=frozenset(by_text - {plain}),
        plain=plain,
        eot_id=eot,
        eom_id=eom,
    )


def _named_or_found(ids: Mapping[str, int], named: int, texts: tuple[str, ...]) -> int:
    return named if named >= 0 else min((ids[t] for t in texts if t in ids), default=-1)


def _ends_by_call(ids: Mapping[str, int]) -> bool:
    """Formats in which `<|end|>` only closes one message of an answer."""
    call, calls = "<|call|>" in ids, "<|calls|>" in ids
    return (call and "<|return|>" in ids) or ((call or calls) and "<|flush|>" in ids)
