"""One model, asked the same with a drafter and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.events import Event, Finished, Text
from turbodflash_engine.info import DraftInfo
from turbodflash_engine.loading import Loaded
from turbodflash_engine.options import LoadOptions, SayOptions
from turbodflash_engine.session import Session

CONTEXT = 2048
"""Positions of the cache where nobody asked for a number."""


class Prompt(NamedTuple):
    """What is asked, and the kind of text that answers it."""

    kind: str
    text: str


class Answered(NamedTuple):
    """One answer. tokens: all but the last of prompt and answer."""

    finished: Finished
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Rivals:
    """Two sessions over one model and one cache; either answers as if nothing had been asked yet.

    What is learnt of a drafter outlives an answer, as it does in a chat.
    """

    loaded: Loaded
    drafter: Drafter
    draft: DraftInfo
    off: Session
    on: Session

    @classmethod
    def of(cls, loaded: Loaded, options: LoadOptions) -> Rivals:
        """Both sessions over what was loaded, a drafter included."""
        assert loaded.drafter is not None
        assert loaded.info.draft is not None
        parts, info = (loaded.model, loaded.tokenizer, loaded.template), loaded.info
        chunk = min(options.batch, options.ubatch)
        off = Session(*parts, info._replace(draft=None), chunk=chunk)
        on = Session(*parts, info, loaded.drafter, chunk, options.spec)
        return cls(loaded, loaded.drafter, loaded.info.draft, off, on)

    def answer(self, drafting: bool, prompt: str, options: SayOptions) -> Answered:
        """A chat's answer to a first message."""
        session = self._fresh(drafting)
        return _heard(session, session.chat([{"role": "user", "content": prompt}], options))

    def read(self, drafting: bool, text: str) -> Finished:
        """Reads a text and says nothing."""
        session = self._fresh(drafting)
        return _heard(session, session.complete(text, SayOptions(max_tokens=0))).finished

    def _fresh(self, drafting: bool) -> Session:
        self.loaded.model.cache.truncate(0)
        self.drafter.truncate(0)
        return self.on if drafting else self.off


def _heard(session: Session, events: Iterator[Event]) -> Answered:
    text = "".join(event.piece for event in events if isinstance(event, Text))
    assert session.last is not None
    return Answered(session.last, session.held, text)
