"""One answer: the engine's events are painted as they come, and what they amount to is kept."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from turbodflash_cli.interrupt import Interrupt
from turbodflash_cli.paint import Paint
from turbodflash_engine import Event, Finished, Progress, Text

if TYPE_CHECKING:
    from turbodflash_engine import Session


class Answer(NamedTuple):
    """What one turn amounted to; `finished` is there also after Ctrl-C.

    terminated: the whole program was told to end.
    """

    finished: Finished
    text: str
    reasoning: str
    terminated: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether a person stopped it."""
        return self.finished.reason == "interrupted"


def listen(session: Session, events: Iterator[Event], paint: Paint) -> Answer:
    """Paint the events of an answer until they end, or until Ctrl-C asks to stop.

    Stopping closes the events: the session then is as after its last complete token.
    """
    spoken: dict[bool, list[str]] = {False: [], True: []}
    finished: Finished | None = None
    with Interrupt() as interrupt:
        try:
            for event in events:
                if isinstance(event, Text):
                    spoken[event.thought].append(event.piece)
                    paint.text(event)
                elif isinstance(event, Progress):
                    paint.progress(event)
                elif isinstance(event, Finished):
                    finished = event
                if interrupt.asked:
                    break
        finally:
            if isinstance(events, Generator):
                events.close()
            paint.end()
    finished = finished or session.last
    assert finished is not None, "an answer that began has an end"
    return Answer(finished, "".join(spoken[False]), "".join(spoken[True]), interrupt.terminated)
