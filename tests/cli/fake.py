"""A session of scripted events: the program is tested without a model, a tokenizer or numpy."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbodflash_engine import (
    Event,
    Finished,
    SampleOptions,
    SayOptions,
    Speculation,
    Started,
    Text,
)
from turbodflash_engine.info import DraftInfo, Memory, ModelInfo

INFO = ModelInfo(
    name="Tiny",
    path=Path("tiny.gguf"),
    architecture="llama",
    file_type="Q4_1",
    file_bytes=98_362_432,
    parameters=134_515_008,
    layers=30,
    context=4096,
    trained_context=8192,
    device="cpu avx2, 2 threads",
    cache_type_k="f16",
    cache_type_v="f16",
    has_template=True,
    sample_defaults=SampleOptions(),
    sample_keys=(),
    memory=Memory(weights=100_000_000, cache=50_000_000, scratch=1_000_000),
)


DRAFT = DraftInfo(
    kind="draft-dflash",
    path=Path("weak.gguf"),
    taps=(2, 15, 28),
    longest=15,
    memory=Memory(weights=22_000_000, cache=9_000_000, scratch=0),
    file_bytes=22_974_112,
    parameters=21_600_000,
    context=4096,
)

DID = Speculation(
    drafter="draft-dflash",
    steps=41,
    drafts=41,
    probes=1,
    drafted=615,
    tested=280,
    accepted=246,
    emitted=287,
    widths=(*(0,) * 15, 41),
    histogram=(0, 0, 0, 0, 0, 0, 41),
    seconds_draft=0.25,
    seconds_verify=1.5,
    seconds_observe=0.125,
    seconds_rest=0.0625,
    nbytes=31_000_000,
)
"""An answer in 41 passes, each of which accepted 6 of 15 drafted tokens."""


def drafted(**more: Any) -> Finished:
    """The end of an answer in which the drafting went as in `DID`, with changes."""
    return finished(speculation=DID._replace(**more))


def finished(reason: str = "stop", **more: Any) -> Finished:
    """The end of an answer of 3 tokens to a prompt of 10."""
    numbers = {
        "prompt_tokens": 10,
        "cached_tokens": 0,
        "new_tokens": 3,
        "prefill_seconds": 0.1,
        "decode_seconds": 0.5,
        "seed": 42,
    }
    return Finished(reason, **(numbers | more))


def hello() -> list[Event]:
    """An answer in two pieces."""
    return [Started(10, 0, 42), Text("Hel"), Text("lo"), finished()]


class FakeSession:
    """Plays one script per answer, the last one again and again, and remembers what was asked.

    A script is a list of events; an exception in it is raised, a function in it is called.
    """

    def __init__(self, *scripts: Sequence[Any], **info: Any) -> None:
        self.info = INFO._replace(**info)
        self.scripts = list(scripts) or [hello()]
        self.asked: list[tuple[Any, SayOptions]] = []
        self.used = 0
        self.last: Finished | None = None
        self.restored: list[Path] = []
        self.saved: list[tuple[Path, bool]] = []
        self.refusal: Exception | None = None

    def restore(self, path: Path) -> int:
        self.restored.append(path)
        if self.refusal:
            raise self.refusal
        return 7

    def save(self, path: Path, *, answer: bool = False) -> int:
        self.saved.append((path, answer))
        return 7

    def chat(self, messages: Sequence[dict[str, Any]], options: SayOptions) -> Iterator[Event]:
        return self._play([dict(each) for each in messages], options)

    def complete(self, prompt: str, options: SayOptions) -> Iterator[Event]:
        return self._play(prompt, options)

    def _play(self, asked: Any, options: SayOptions) -> Iterator[Event]:
        script = self.scripts[min(len(self.asked), len(self.scripts) - 1)]
        self.asked.append((asked, options))
        return self._events(script)

    def _events(self, script: Sequence[Any]) -> Iterator[Event]:
        try:
            for each in script:
                if isinstance(each, BaseException):
                    raise each
                if callable(each):
                    each()
                else:
                    self.last = each if isinstance(each, Finished) else self.last
                    yield each
        except GeneratorExit:
            self.last = finished("interrupted")
            raise

    @property
    def prompts(self) -> list[Any]:
        """What was asked, without the options."""
        return [asked for asked, _ in self.asked]


class Stream(io.StringIO):
    """A text stream that may say it is a terminal."""

    def __init__(self, text: str = "", tty: bool = False) -> None:
        super().__init__(text)
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@dataclass(frozen=True)
class Result:
    """What a run of the program left behind."""

    code: int
    out: str
    err: str


@dataclass
class Program:
    """Runs the real program over a fake session. `opened` are the options it was loaded with."""

    monkeypatch: Any
    session: FakeSession = field(default_factory=FakeSession)
    opened: list[Any] = field(default_factory=list)

    def __call__(self, *argv: str, stdin: str | None = None, tty: str = "") -> Result:
        """Run it. tty: which of stdin, stdout, stderr are terminals, as "in out err"."""
        from turbodflash_cli.app import main

        streams = {
            "stdin": Stream(stdin or "", tty="in" in tty or stdin is None),
            "stdout": Stream(tty="out" in tty),
            "stderr": Stream(tty="err" in tty),
        }
        for name, stream in streams.items():
            self.monkeypatch.setattr("sys." + name, stream)
        code = main(list(argv))
        return Result(code, streams["stdout"].getvalue(), streams["stderr"].getvalue())

    def open_session(self, options: Any, progress: Any = None) -> FakeSession:
        self.opened.append(options)
        return self.session
