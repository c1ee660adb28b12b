"""The main job: one prompt and its answer, or a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from turbodflash_cli import report
from turbodflash_cli.drafting import find_draft, spec_options
from turbodflash_cli.flags import (
    ComputeFlags,
    ContextFlags,
    DraftFlags,
    LastingFlags,
    ModelFlags,
    NgramFlags,
    OutputFlags,
    PromptFlags,
    ReasoningFlags,
    SamplingFlags,
)
from turbodflash_cli.interrupt import CODE as INTERRUPTED
from turbodflash_cli.opening import find_model, open_model
from turbodflash_cli.options import (
    chat_template,
    forbids_thinking,
    load_options,
    say_options,
    thinking,
)
from turbodflash_cli.paint import Aloud, Manner, Paint, Silent
from turbodflash_cli.prompt_cache import check_flags, kept_prompt, say_reused
from turbodflash_cli.prompts import first_prompt, system_message
from turbodflash_cli.terminal import Terminal
from turbodflash_cli.turn import Answer, listen
from turbodflash_engine import BadUsage, Event, SampleOptions, SayOptions

if TYPE_CHECKING:
    from turbodflash_engine import Session


class Request(NamedTuple):
    """What is asked, settled before anything is loaded."""

    prompt: str | None
    system: str | None
    chats: bool
    raw: bool | None

    @classmethod
    def of(cls, flags: PromptFlags, output: OutputFlags, in_tty: bool) -> Request:
        """Read the prompt; refuse what cannot go together."""
        prompt = None if output.spec_doctor else first_prompt(flags, in_tty)
        system = system_message(flags)
        raw = None if flags.conversation is None else not flags.conversation
        chats = prompt is None or (flags.conversation is True and not flags.single_turn)
        if raw and prompt is None:
            raise BadUsage("-no-cnv needs a text to continue.", hint="give it with -p or -f")
        if raw and system is not None:
            raise BadUsage("-no-cnv continues a text and has no system message.", hint="drop -sys")
        if chats and output.json:
            raise BadUsage("--json is for one answer, not for a chat.", hint="give a prompt: -p")
        return cls(prompt, system, chats, raw)

    def is_raw(self, session: Session) -> bool:
        """Whether the prompt is continued as it is, without a chat template."""
        return self.raw if self.raw is not None else not (self.chats or session.info.has_template)


def run(
    terminal: Terminal,
    model: ModelFlags,
    draft: DraftFlags,
    prompt: PromptFlags,
    sampling: SamplingFlags,
    window: ContextFlags,
    lasting: LastingFlags,
    compute: ComputeFlags,
    reasoning: ReasoningFlags,
    output: OutputFlags,
    ngram: NgramFlags,
) -> int:
    """Answer and exit, or chat; the result is the exit code."""
    terminal.verbose = output.talkative
    check_flags(lasting)
    request = Request.of(prompt, output, terminal.in_tty)
    template = chat_template(prompt)
    say_options(SampleOptions(), sampling, prompt, reasoning)  # what is wrong is said at once
    spec = spec_options(draft, ngram)
    file = find_model(terminal, model)
    spec = find_draft(terminal, spec, draft, model)
    load = load_options(file, window, compute, template, spec, lasting)
    if output.spec_doctor:
        from turbodflash_cli.doctor import doctor

        return doctor(terminal, load, thinking(reasoning))
    session = open_model(terminal, load)
    options = say_options(session.info.sample_defaults, sampling, prompt, reasoning)
    _advise(terminal, request, reasoning, session)
    with kept_prompt(terminal, session, lasting):
        if request.chats:
            from turbodflash_cli.chat import Chat

            chat = Chat(terminal, session, options, manner(terminal, reasoning, raw=False))
            return chat.start(request.prompt, request.system, prompt, output)
        code = answer_once(terminal, session, request, options, reasoning, output)
        if session.last is not None:
            say_reused(terminal, lasting, session.last)
        return code


def answer_once(
    terminal: Terminal,
    session: Session,
    request: Request,
    options: SayOptions,
    reasoning: ReasoningFlags,
    output: OutputFlags,
) -> int:
    """One prompt, one answer."""
    raw = request.is_raw(session)
    paint: Paint = Silent(terminal)
    if not output.json:
        paint = Aloud(terminal, manner(terminal, reasoning, raw))
        if output.display_prompt and request.prompt is not None:
            terminal.write(request.prompt if raw else f"{request.prompt}\n")
    answer = listen(session, _events(session, request, options, raw), paint)
    if output.json:
        terminal.write(report.record(answer, str(session.info.path), session.info.draft) + "\n")
    _close(terminal, session, request, answer, output)
    return INTERRUPTED if answer.interrupted else 0


def manner(terminal: Terminal, reasoning: ReasoningFlags, raw: bool) -> Manner:
    """How answers look: thoughts are for people, and a pipe gets the answer alone."""
    return Manner(
        thoughts=terminal.out_tty or reasoning.show_thinking,
        newline=terminal.out_tty or not raw,
    )


def messages(system: str | None, prompt: str) -> list[dict[str, str]]:
    """A chat's first messages."""
    first = [{"role": "system", "content": system}] if system is not None else []
    return [*first, {"role": "user", "content": prompt}]


def _events(session: Session, request: Request, options: SayOptions, raw: bool) -> Iterator[Event]:
    prompt = request.prompt or ""
    if raw:
        return session.complete(prompt, options)
    return session.chat(messages(request.system, prompt), options)


def _close(
    terminal: Terminal, session: Session, request: Request, answer: Answer, output: OutputFlags
) -> None:
    """Everything that is told after the text."""
    finished = answer.finished
    report.say_if_full(terminal, finished, session.info.context)
    if output.show_timings:
        report.say_timings(terminal, finished, session.info.draft)
    if output.stats:
        report.say_stats(terminal, finished, session.info.draft)
    report.say_details(terminal, finished)
    if output.timings_json is not None:
        report.write_json(output.timings_json, finished)
    if output.output is not None:
        said = [*messages(request.system, request.prompt or ""), report.said(answer)]
        report.write_file(output.output, report.transcript(said), "-o")


def _advise(
    terminal: Terminal, request: Request, reasoning: ReasoningFlags, session: Session
) -> None:
    if not session.info.has_template and (request.raw is False or request.chats):
        terminal.warn(
            "the model has no chat template; using ChatML. Try -no-cnv or --chat-template."
        )
    if thinking(reasoning) is False and forbids_thinking() and reasoning.reasoning is None:
        terminal.detail("LLAMA_SPEC_NO_THINK is set: read as --reasoning off")
