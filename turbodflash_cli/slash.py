"""The commands of a chat, one function each.

A command gets the chat and the words after its name. It returns a message to send, or None.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbodflash_cli import settings, speculation
from turbodflash_cli.progress import size
from turbodflash_cli.prompts import read_text
from turbodflash_engine import BadUsage

if TYPE_CHECKING:
    from turbodflash_cli.chat import Chat

MOST_FILES = 100
Act = Callable[["Chat", str], "str | None"]


class Leave(Exception):
    """The person leaves the chat."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: every name it answers to, what follows it, what it does."""

    names: tuple[str, ...]
    argument: str
    help: str
    act: Act


COMMANDS: list[Command] = []


def command(*names: str, argument: str = "", help: str) -> Callable[[Act], Act]:
    """Put a function on the list of commands."""

    def enlist(act: Act) -> Act:
        COMMANDS.append(Command(names, argument, help, act))
        return act

    return enlist


def names() -> list[str]:
    """Every name of every command."""
    return [name for each in COMMANDS for name in each.names]


def obey(chat: Chat, line: str) -> str | None:
    """Carry out a line: a message comes back, a command is done. `//` begins a message with `/`."""
    if not line.startswith("/"):
        return line
    if line.startswith("//"):
        return line[1:]
    word, _, rest = line.partition(" ")
    for each in COMMANDS:
        if word.lower() in each.names:
            return each.act(chat, rest.strip())
    near = get_close_matches(word.lower(), names(), n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise BadUsage(
        f"unknown command {word!r}.{guess}",
        hint="type /help; to send a message that starts with '/', type '//'",
    )


@command("/help", "/?", help="These commands.")
def _help(chat: Chat, rest: str) -> None:
    for each in COMMANDS:
        spelled = " ".join(filter(None, (", ".join(each.names), each.argument)))
        chat.terminal.say(f"  {spelled:<28}{each.help}")
    chat.terminal.say("  Enter sends; \\ at the end of a line, Alt-Enter or Ctrl-J add a line;")
    chat.terminal.say('  """ begins and ends a block. Ctrl-C stops an answer, Ctrl-D leaves.')


@command("/exit", "/quit", "/bye", help="Leave.")
def _exit(chat: Chat, rest: str) -> None:
    raise Leave


@command("/clear", "/new", help="Forget the conversation; the system message stays.")
def _clear(chat: Chat, rest: str) -> None:
    chat.messages = [each for each in chat.messages if each["role"] == "system"]
    chat.pending = []
    chat.terminal.note("Chat history cleared.")


@command("/regen", "/retry", help="Answer the last message anew.")
def _regen(chat: Chat, rest: str) -> None:
    if not chat.regenerate():
        raise BadUsage("no message to regenerate.")


@command("/undo", help="Drop the last exchange.")
def _undo(chat: Chat, rest: str) -> None:
    at = chat.last_exchange()
    if at is None:
        raise BadUsage("there is nothing to undo.")
    chat.messages = chat.messages[:at]
    chat.terminal.note("Last exchange dropped.")


@command("/edit", argument="[text]", help="Change the last message and send it again.")
def _edit(chat: Chat, rest: str) -> str | None:
    at = chat.last_exchange()
    if at is None:
        raise BadUsage("there is no message to edit.")
    if not rest and not chat.reader.can_edit:
        raise BadUsage("there is no line editor here.", hint="give the new text: /edit text")
    text = rest or chat.reader.read("> ", str(chat.messages[at]["content"]))
    if text:
        chat.messages = chat.messages[:at]
    return text or None


@command("/read", argument="<file>", help="Put a text file before the next message.")
def _read(chat: Chat, rest: str) -> None:
    file = _path(rest, "/read")
    chat.pending.append(f"--- File: {file} ---\n{read_text(file, 'file')}\n")
    chat.terminal.note(f"Loaded text from '{file}'")


@command("/glob", argument="<pattern>", help="Put matching text files before the next message.")
def _glob(chat: Chat, rest: str) -> None:
    import glob

    pattern = str(_path(rest, "/glob"))
    found = sorted(name for name in glob.iglob(pattern, recursive=True) if Path(name).is_file())
    if not found:
        raise BadUsage(f"no file matches {pattern!r}.")
    for name in found[:MOST_FILES]:
        _read(chat, name)
    if len(found) > MOST_FILES:
        chat.terminal.warn(f"{len(found)} files match; the first {MOST_FILES} were loaded.")


@command("/system", argument="[text]", help="Show or change the system message.")
def _system(chat: Chat, rest: str) -> None:
    if rest:
        chat.system = rest
    chat.terminal.note(f"System message: {chat.system}" if chat.system else "No system message.")


@command("/set", argument="[name value]", help="Show or change how answers are sampled.")
def _set(chat: Chat, rest: str) -> None:
    if not rest:
        for name, value in settings.current(chat.options):
            chat.terminal.say(f"  {name:<20}{value}")
        return
    name, _, value = rest.partition(" ")
    if not value.strip():
        raise BadUsage(f"/set {name} needs a value.", hint="for example: /set temp 0.7")
    chat.options = settings.change(chat.options, name, value.strip())
    chat.terminal.note(f"{name} = {value.strip()}")


@command("/think", argument="on|off", help="Ask the model to think, or not to.")
def _think(chat: Chat, rest: str) -> None:
    chat.options = settings.change(chat.options, "reasoning", rest or "on")
    chat.terminal.note(f"reasoning = {rest or 'on'}")


@command("/stats", help="Tokens, speed and drafting of this chat.")
def _stats(chat: Chat, rest: str) -> None:
    totals, say = chat.totals, chat.terminal.say
    computed = totals.prompt_tokens - totals.cached_tokens
    say(f"  answers     {totals.answers}")
    say(f"  prompt      {computed} tokens computed, {totals.cached_tokens} found in the cache")
    say(f"              {_speed(computed, totals.prefill_seconds)}")
    say(f"  generation  {totals.new_tokens} tokens")
    counted = max(totals.new_tokens - totals.answers, 0)
    say(f"              {_speed(counted, totals.decode_seconds)}")
    if totals.speculation is not None:
        for line in speculation.table(totals.speculation, chat.session.info.draft):
            say(line)


@command("/context", help="How full the context is.")
def _context(chat: Chat, rest: str) -> None:
    used, info = chat.session.used, chat.session.info
    chat.terminal.say(
        f"  {used} of {info.context} tokens ({100 * used / max(info.context, 1):.0f} %),"
        f" KV cache {size(info.memory.cache)}"
    )


@command("/save", argument="<file>", help="Write the conversation as JSON.")
def _save(chat: Chat, rest: str) -> None:
    file = _path(rest, "/save")
    try:
        file.write_text(json.dumps(chat.messages, ensure_ascii=False, indent=1) + "\n", "utf-8")
    except OSError as error:
        raise BadUsage(f"cannot write {str(file)!r}: {error.strerror}.") from error
    chat.terminal.note(f"{len(chat.messages)} messages saved to '{file}'")


@command("/load", argument="<file>", help="Go on with a saved conversation.")
def _load(chat: Chat, rest: str) -> None:
    file = _path(rest, "/load")
    try:
        loaded = json.loads(read_text(file, "conversation file"))
    except (json.JSONDecodeError, RecursionError):
        loaded = None
    if not _is_conversation(loaded):
        raise BadUsage(f"{str(file)!r} is no conversation.", hint="load a file that /save wrote")
    chat.messages = loaded
    chat.terminal.note(f"{len(loaded)} messages loaded from '{file}'")


@command("/image", "/audio", "/video", argument="<file>", help="Not in this build.")
def _media(chat: Chat, rest: str) -> None:
    raise BadUsage("this build has no multimodal input.")


def _is_conversation(loaded: Any) -> bool:
    return isinstance(loaded, list) and all(
        isinstance(each, dict)
        and each.get("role") in ("system", "user", "assistant")
        and isinstance(each.get("content"), str)
        for each in loaded
    )


def _path(rest: str, name: str) -> Path:
    quoted = len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "'\""
    text = rest[1:-1] if quoted else rest
    if not text:
        raise BadUsage(f"{name} needs a file.", hint=f"for example: {name} notes.txt")
    return Path(text).expanduser()


def _speed(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds if seconds > 0 else 0.0:.1f} t/s"
