"""What is told about an answer: the timing line, the JSON record, the transcript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbodflash_cli import speculation
from turbodflash_cli.paint import END_THINKING, START_THINKING
from turbodflash_cli.terminal import Terminal
from turbodflash_cli.turn import Answer
from turbodflash_engine import BadUsage, Finished

if TYPE_CHECKING:
    from turbodflash_engine import DraftInfo

Message = Mapping[str, Any]


def timing_lines(finished: Finished, draft: DraftInfo | None = None) -> list[str]:
    """Prompt and generation speed; with a drafter a second line."""
    speeds = (
        f"[ Prompt: {finished.prompt_tokens_per_second:.1f} t/s"
        f" | Generation: {finished.tokens_per_second:.1f} t/s ]"
    )
    drafting = speculation.summary_line(finished, draft)
    return [speeds, *([drafting] if drafting else [])]


def say_timings(terminal: Terminal, finished: Finished, draft: DraftInfo | None = None) -> None:
    """The timing lines on stderr, after a blank line."""
    terminal.say()
    for line in timing_lines(finished, draft):
        terminal.say(line)


def say_stats(terminal: Terminal, finished: Finished, draft: DraftInfo | None) -> None:
    """What `--stats` adds: how the drafting went."""
    did = finished.speculation
    for line in ["  no drafting"] if did is None else speculation.table(did, draft):
        terminal.say(line)


def say_if_full(terminal: Terminal, finished: Finished, context: int) -> None:
    """An answer that the context cut off, or that lost its beginning, must not look complete."""
    if finished.reason == "context":
        used = finished.prompt_tokens + finished.new_tokens
        terminal.note(f"[stopped: context full, {used} of {context} tokens]")
    if finished.dropped:
        terminal.note(f"[context full: {finished.dropped:,} of its oldest tokens were dropped]")


def say_details(terminal: Terminal, finished: Finished) -> None:
    """What `-v` adds: counts, times, why it ended, and the seed that repeats it."""
    terminal.detail(
        f"prompt: {finished.prompt_tokens} tokens ({finished.cached_tokens} cached)"
        f" in {finished.prefill_seconds:.3f} s"
    )
    terminal.detail(
        f"generation: {finished.new_tokens} tokens in {finished.decode_seconds:.3f} s,"
        f" ended by: {finished.reason}"
    )
    terminal.detail(f"seed: {finished.seed}")


def timings(finished: Finished) -> dict[str, Any]:
    """The numbers under the names that llama.cpp's server gives them."""
    computed = finished.prompt_tokens - finished.cached_tokens
    fields: dict[str, Any] = {
        "cache_n": finished.cached_tokens,
        "prompt_n": computed,
        **_pace("prompt", computed, finished.prefill_seconds, finished.prompt_tokens_per_second),
        "predicted_n": finished.new_tokens,
        **_pace(
            "predicted", finished.new_tokens, finished.decode_seconds, finished.tokens_per_second
        ),
    }
    if finished.dropped:
        fields["dropped_n"] = finished.dropped
    did = finished.speculation
    if did is not None:
        fields |= {
            "draft_n": did.drafted,
            "draft_n_accepted": did.accepted,
            "draft_rounds": did.steps,
            "draft_kind": did.drafter,
        }
    return fields


def record(answer: Answer, model: str, draft: DraftInfo | None = None) -> str:
    """One JSON object with everything about an answer."""
    did = answer.finished.speculation
    fields = {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "finish_reason": answer.finished.reason,
        "seed": answer.finished.seed,
        "model": model,
        "draft": speculation.record(answer.finished, draft),
        "timings": timings(answer.finished),
    }
    if did is not None and did.synthetic:
        fields["not_real"] = speculation.NOT_REAL
    import json

    return json.dumps(fields, ensure_ascii=False)


def transcript(messages: Sequence[Message]) -> str:
    """A chat as text for people: blocks of who said what."""
    blocks = []
    for message in messages:
        thoughts = message.get("reasoning_content")
        said = f"{START_THINKING}{thoughts}{END_THINKING}" if thoughts else ""
        blocks.append(f"{str(message['role']).capitalize()}:\n{said}{message['content']}\n")
    return "\n".join(blocks)


def said(answer: Answer) -> dict[str, str]:
    """An answer as a message of a chat."""
    message = {"role": "assistant", "content": answer.text}
    return message | ({"reasoning_content": answer.reasoning} if answer.reasoning else {})


def write_json(file: Path, finished: Finished) -> None:
    """Write the timings to the file that `--timings-json` named."""
    import json

    write_file(file, json.dumps(timings(finished)) + "\n", "--timings-json")


def write_file(file: Path, text: str, option: str) -> None:
    """Write a report to the file that an option named."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadUsage(f"{option}: cannot write {str(file)!r}: {error.strerror}.") from error


def _pace(name: str, tokens: int, seconds: float, per_second: float) -> dict[str, float]:
    milliseconds = seconds * 1e3
    return {
        f"{name}_ms": milliseconds,
        f"{name}_per_token_ms": milliseconds / tokens if tokens else 0.0,
        f"{name}_per_second": per_second,
    }
