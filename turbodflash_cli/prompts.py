"""What is asked: from the command line, from files, from a pipe."""

from __future__ import annotations

import sys
from pathlib import Path

from turbodflash_cli.flags import PromptFlags
from turbodflash_cli.flags.values import unescape
from turbodflash_engine import BadUsage

STDIN = "-"


def first_prompt(flags: PromptFlags, in_tty: bool) -> str | None:
    """The prompt of a one-shot run; None = a person, or the lines of a pipe, will chat.

    Piped text stands first, then the file, then `-p`, with a blank line between them.
    """
    parts = []
    if _reads_stdin(flags, in_tty):
        parts.append(_unescaped(read_stdin(), flags.escape is True))
    if flags.file is not None and str(flags.file) != STDIN:
        parts.append(_unescaped(read_text(flags.file, "prompt file"), flags.escape is True))
    if flags.prompt is not None and flags.prompt != STDIN:
        parts.append(_unescaped(flags.prompt, flags.escape is not False))
    if not parts:
        return None
    prompt = "\n\n".join(part for part in parts if part)
    if not prompt.strip():
        raise BadUsage("the prompt is empty.", hint="turbodflash -p 'what to say'")
    return prompt


def system_message(flags: PromptFlags) -> str | None:
    """The system message, if there is one."""
    if flags.system is not None and flags.system_file is not None:
        raise BadUsage("-sys and -sysf both give a system message.", hint="leave one of them out")
    if flags.system_file is not None:
        text: str | None = read_text(flags.system_file, "system prompt file")
    else:
        text = flags.system
    return None if text is None else _unescaped(text, flags.escape is True)


def stop_strings(flags: PromptFlags) -> tuple[str, ...]:
    """Texts that end an answer."""
    return tuple(_unescaped(text, flags.escape is not False) for text in flags.reverse_prompt)


def read_text(file: Path, what: str) -> str:
    """The text of a file, without its last newline."""
    try:
        return without_last_newline(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadUsage(f"{what} not found: {file}") from None
    except IsADirectoryError:
        raise BadUsage(f"{str(file)!r} is a folder, not a {what}.") from None
    except PermissionError:
        raise BadUsage(f"cannot read {str(file)!r}: permission denied.") from None
    except UnicodeDecodeError as error:
        raise BadUsage(
            f"{str(file)!r} is not UTF-8 text (byte {error.start}).", hint="convert it to UTF-8"
        ) from error
    except OSError as error:
        raise BadUsage(f"cannot read {str(file)!r}: {error.strerror}.") from error


def read_stdin() -> str:
    """The piped text, without its last newline."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        return without_last_newline(sys.stdin.read())
    except UnicodeDecodeError as error:
        raise BadUsage(
            f"the piped text is not UTF-8 (byte {error.start}).", hint="convert it to UTF-8"
        ) from error


def without_last_newline(text: str) -> str:
    """The text as an editor shows it: its closing newline is the file's, not the text's."""
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _unescaped(text: str, wanted: bool) -> str:
    return unescape(text) if wanted else text


def _reads_stdin(flags: PromptFlags, in_tty: bool) -> bool:
    if STDIN in (flags.prompt, str(flags.file)):
        return True
    if in_tty or flags.conversation is True or flags.file is not None:
        return False
    return flags.prompt is None or not flags.single_turn
