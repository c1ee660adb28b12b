"""The line editor of a chat. A pasted text is one message, whatever lines it has."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output, create_output

from turbodflash_cli.compose import entered

TAKES_PATH = ("/read", "/glob", "/save", "/load")


class Editor:
    """prompt_toolkit with the keys of a chat.

    Enter sends; Alt-Enter and Ctrl-J add a line; Ctrl-X Ctrl-E opens $EDITOR; Ctrl-R searches
    the history; Tab completes commands and paths; Ctrl-C clears the line, then interrupts.
    """

    can_edit = True

    def __init__(
        self,
        history: Path | None,
        multiline: bool,
        commands: Sequence[str],
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        kept: History = FileHistory(str(history)) if history else InMemoryHistory()
        self._session: PromptSession[str] = PromptSession(
            multiline=True,
            prompt_continuation="",
            history=kept,
            key_bindings=_keys(multiline),
            completer=SlashCompleter(commands),
            complete_while_typing=False,
            enable_open_in_editor=True,
            enable_suspend=True,
            input=input,
            output=output or create_output(stdout=sys.stderr),
        )

    def read(self, prompt: str, offered: str = "") -> str | None:
        """The next message; None after Ctrl-D on an empty line."""
        try:
            return self._session.prompt(ANSI(prompt), default=offered)
        except EOFError:
            return None


class SlashCompleter(Completer):
    """Completes the commands of a chat, and paths after those that take one."""

    def __init__(self, commands: Sequence[str]) -> None:
        self._commands = commands
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """What the word before the cursor may become."""
        text = document.text_before_cursor
        word, space, rest = text.partition(" ")
        if space and word.lower() in TAKES_PATH:
            yield from self._paths.get_completions(Document(rest, len(rest)), event)
        elif text.startswith("/") and not space:
            for command in self._commands:
                if command.startswith(text.lower()):
                    yield Completion(command, start_position=-len(text))


def _keys(multiline: bool) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        sent, text = entered(buffer.text, multiline)
        buffer.document = Document(text, len(text))
        if sent:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _cancel(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    return keys
