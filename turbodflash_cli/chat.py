"""The REPL: read, say, paint, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turbodflash_cli import report, slash
from turbodflash_cli.flags import OutputFlags, PromptFlags
from turbodflash_cli.interrupt import Terminated
from turbodflash_cli.opening import summary
from turbodflash_cli.paint import Aloud, Manner
from turbodflash_cli.reader import Reader, open_reader
from turbodflash_cli.terminal import DIM, PLAIN, Terminal
from turbodflash_cli.turn import listen
from turbodflash_engine import DoesNotFit, Finished, SayOptions, Speculation, TurbodflashError

if TYPE_CHECKING:
    from turbodflash_engine import Session

NEARLY_FULL = 0.75
"""Share of the context from which the prompt line shows how full it is."""

MANY_DRAFTED, FEW_ACCEPTED = 100, 0.25
"""Tokens after which drafts that are right less often than this are remarked upon, once."""

Message = dict[str, Any]


@dataclass(slots=True)
class Totals:
    """What the chat has cost so far."""

    answers: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    new_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    speculation: Speculation | None = None

    def add(self, finished: Finished) -> None:
        """Count one more answer."""
        self.answers += 1
        for name in Totals.__slots__[1:-1]:
            setattr(self, name, getattr(self, name) + getattr(finished, name))
        did, before = finished.speculation, self.speculation
        if did is not None:
            self.speculation = before.plus(did) if before else did

    @property
    def rarely_right(self) -> bool:
        """Whether enough was drafted to say that drafting does not help."""
        did = self.speculation
        return did is not None and did.drafted >= MANY_DRAFTED and did.acceptance < FEW_ACCEPTED


class Chat:
    """A conversation: its messages, its settings, and who is asked for the next line.

    A turn that fails is not kept: the conversation is as before it.
    """

    def __init__(
        self, terminal: Terminal, session: Session, options: SayOptions, manner: Manner
    ) -> None:
        self.terminal = terminal
        self.session = session
        self.options = options
        self.messages: list[Message] = []
        self.pending: list[str] = []
        self.totals = Totals()
        self.reader: Reader
        self._manner = manner
        self._attempt = 0
        self._show_timings = True
        self._show_stats = False
        self._remarked = False
        self._code = 0

    def start(
        self, first: str | None, system: str | None, prompt: PromptFlags, output: OutputFlags
    ) -> int:
        """Chat until the person leaves; the result is the exit code."""
        self.system = system
        self._show_timings, self._show_stats = output.show_timings, output.stats
        self.reader = open_reader(
            self.terminal,
            history=prompt.history,
            multiline=prompt.multiline,
            commands=slash.names(),
        )
        if self.terminal.in_tty:
            self._welcome()
        if first is not None:
            self.say(first)
        self._loop(single_turn=prompt.single_turn)
        if output.output is not None:
            report.write_file(output.output, report.transcript(self.messages), "-o")
        return 0 if self.terminal.in_tty else self._code

    @property
    def system(self) -> str | None:
        """The system message."""
        first = self.messages[:1]
        return str(first[0]["content"]) if first and first[0]["role"] == "system" else None

    @system.setter
    def system(self, text: str | None) -> None:
        said = [each for each in self.messages if each["role"] != "system"]
        self.messages = [*([{"role": "system", "content": text}] if text else []), *said]

    def say(self, text: str) -> None:
        """Send a message, after the files that wait for one."""
        content = "\n".join([*self.pending, text])
        if self._ask([*self.messages, {"role": "user", "content": content}], attempt=0):
            self.pending = []

    def regenerate(self) -> bool:
        """Ask for the last answer again, drawn anew; False = there is none."""
        asked = self.last_exchange()
        if asked is None:
            return False
        self._ask(self.messages[: asked + 1], attempt=self._attempt + 1)
        return True

    def last_exchange(self) -> int | None:
        """Where the person's last message is."""
        spoken = [at for at, each in enumerate(self.messages) if each["role"] == "user"]
        return spoken[-1] if spoken else None

    def _ask(self, messages: Sequence[Message], attempt: int) -> bool:
        options = replace(self.options, attempt=attempt)
        paint = Aloud(self.terminal, self._manner)
        try:
            answer = listen(self.session, self.session.chat(messages, options), paint)
        except TurbodflashError as error:
            self._refuse(error)
            return False
        self._attempt = attempt
        self.totals.add(answer.finished)
        if answer.text or not answer.interrupted:
            self.messages = [*messages, report.said(answer)]
        self._after(answer.finished)
        if answer.terminated:
            raise Terminated
        return True

    def _after(self, finished: Finished) -> None:
        if finished.reason == "interrupted":
            self.terminal.note("[interrupted]")
        report.say_if_full(self.terminal, finished, self.session.info.context)
        if self._show_timings:
            report.say_timings(self.terminal, finished, self.session.info.draft)
        if self._show_stats:
            report.say_stats(self.terminal, finished, self.session.info.draft)
        self._remark()
        report.say_details(self.terminal, finished)
        if self.terminal.in_tty:
            self.terminal.say()

    def _remark(self) -> None:
        """Say once that drafting does not help."""
        if not self._remarked and self.totals.rarely_right:
            self._remarked = True
            self.terminal.note(
                "The drafts are rarely right; --reasoning off may help, --spec-doctor looks closer."
            )

    def _refuse(self, error: TurbodflashError) -> None:
        self.terminal.end_line()
        self.terminal.fail(error)
        if isinstance(error, DoesNotFit):
            self.terminal.note("/undo drops the last exchange, /clear starts over.")
        self._code = error.exit_code

    def _loop(self, single_turn: bool) -> None:
        warned = False
        while True:
            try:
                line = self.reader.read(self._prompt())
            except Terminated:
                raise
            except KeyboardInterrupt:
                if warned:
                    return
                self.terminal.note("(Ctrl-C again or Ctrl-D to exit)")
                warned = True
                continue
            warned = False
            if line is None:
                if self.terminal.in_tty:
                    self.terminal.say()
                return
            if line.strip() and (not self._obey(line) or single_turn):
                return

    def _obey(self, line: str) -> bool:
        """Do what a line says, a command or a message; False = leave."""
        try:
            message = slash.obey(self, line)
        except slash.Leave:
            return False
        except Terminated:
            raise
        except KeyboardInterrupt:  # the command was stopped, the chat goes on
            return True
        except TurbodflashError as error:
            self.terminal.fail(error)
            return True
        if message is not None:
            self.say(message)
        return True

    def _prompt(self) -> str:
        used, limit = self.session.used, self.session.info.context
        if used < NEARLY_FULL * limit:
            return "> "
        full = f"[ctx {used}/{limit}]"
        return f"{DIM}{full}{PLAIN} > " if self.terminal.err_color else f"{full} > "

    def _welcome(self) -> None:
        for line in summary(self.session):
            self.terminal.note(line)
        self.terminal.say("Type /help for commands, Ctrl-D to leave.")
        self.terminal.say()
