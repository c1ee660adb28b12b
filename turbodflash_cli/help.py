"""The pages that `-h` and `--help-all` print. Plain text: instant, and fit for a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turbodflash_cli.flags import Flag, Group, flags_of
from turbodflash_cli.page import Page

ABOUT = "Run open language models from GGUF files."

EXAMPLES = (
    'turbodflash -p "Write a quicksort algorithm in Python. Write code only."',
    'git diff | turbodflash -m model.gguf -p "Write a commit message" 2>/dev/null',
    "turbodflash -m model.gguf -no-cnv -f prompt.txt -n 256 --temp 0 --json",
)

OTHERS = {
    "-h, --help": "This page.",
    "--help-all": "Every option, spelling and environment variable.",
    "--version": "The version.",
    "--list-devices": "What there is to compute on, and its memory.",
    "--install-completion": "Complete options and commands in this shell.",
}


def main_page(groups: Sequence[type[Group]], commands: Mapping[str, str], all_of_them: bool) -> str:
    """Usage, options (the common ones, or all of them), commands, examples."""
    page = Page()
    page.write_usage("turbodflash", "[OPTIONS]")
    page.write_usage("turbodflash", "COMMAND [OPTIONS]", prefix="       ")
    page.write_sentence(ABOUT)
    write_options(page, groups, all_of_them)
    _write_terms(page, "Commands", commands)
    _write_terms(page, "Other", OTHERS)
    with page.section("Examples"):
        for example in EXAMPLES:
            page.write(f"  {example}\n")
    return page.text


def write_options(formatter: Any, groups: Sequence[Any], all_of_them: bool) -> None:
    """A section for each group, of its common options or of all of them.

    formatter: a `Page`, or typer's.
    """
    for group in groups:
        flags = [flag for _, flag in flags_of(group) if flag.common or all_of_them]
        if flags:
            with formatter.section(group.panel):
                formatter.write_dl(
                    [(_spelled(f, all_of_them), _words(f, all_of_them)) for f in flags]
                )


def _write_terms(page: Page, heading: str, terms: Mapping[str, str]) -> None:
    with page.section(heading):
        page.write_dl(list(terms.items()))


def _spelled(flag: Flag, all_of_them: bool) -> str:
    names = flag.names if all_of_them else _two(flag.names)
    spelled = ", ".join(names)
    if flag.metavar:
        spelled += f" {flag.metavar}"
    off = flag.off if all_of_them else flag.off[:1]
    return f"{spelled} / {', '.join(off)}" if off else spelled


def _two(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first short and the first long spelling."""
    short = [name for name in names if not name.startswith("--")][:1]
    long = [name for name in names if name.startswith("--")][:1]
    return (*short, *long)


def _words(flag: Flag, all_of_them: bool) -> str:
    words = [flag.help]
    if flag.default:
        words.append(f"[default: {flag.default}]")
    if flag.env and all_of_them:
        words.append(f"[env: {flag.env}]")
    return " ".join(words)
