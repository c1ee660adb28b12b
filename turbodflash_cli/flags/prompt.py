"""What the model is asked, and how its thoughts are treated."""

from pathlib import Path
from typing import Annotated, Any

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import choice, json_object, on_off_auto, path, whole


class PromptFlags(Group):
    """One prompt, or a chat."""

    panel = "Prompt and chat"

    prompt: Annotated[
        str | None,
        flag(
            "-p",
            "--prompt",
            help="Answer this and exit; - reads stdin. Without -st, piped text is put before it.",
            metavar="TEXT",
            common=True,
        ),
    ] = None
    file: Annotated[
        Path | None,
        flag(
            "-f",
            "--file",
            help="The prompt is in a file; - reads stdin.",
            metavar="FILE",
            parse=path,
            common=True,
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        flag(
            "-n",
            "--predict",
            "--n-predict",
            help="Tokens to generate; -1 = until the end; -2 = until the context is full.",
            metavar="N",
            parse=whole(low=-2),
            env="LLAMA_ARG_N_PREDICT",
            default="-1",
            common=True,
        ),
    ] = None
    system: Annotated[
        str | None,
        flag("-sys", "--system-prompt", help="System message.", metavar="TEXT", common=True),
    ] = None
    system_file: Annotated[
        Path | None,
        flag(
            "-sysf",
            "--system-prompt-file",
            help="The system message is in a file.",
            metavar="FILE",
            parse=path,
        ),
    ] = None
    conversation: Annotated[
        bool | None,
        flag(
            "-cnv",
            "--conversation",
            "-i",
            "--interactive",
            "-if",
            "--interactive-first",
            help="Chat, also after -p; -no-cnv = continue the text as it is.",
            off=("-no-cnv", "--no-conversation"),
            default="chat if the model has a template",
            common=True,
        ),
    ] = None
    single_turn: Annotated[
        bool,
        flag(
            "-st", "--single-turn", help="One turn, then exit; piped text is not read.", common=True
        ),
    ] = False
    reverse_prompt: Annotated[
        tuple[str, ...],
        flag(
            "-r",
            "--reverse-prompt",
            help="Text that ends an answer. Repeatable.",
            metavar="TEXT",
            many=True,
            common=True,
        ),
    ] = ()
    escape: Annotated[
        bool | None,
        flag(
            "-e",
            "--escape",
            help="Read \\n, \\t and the like in prompts.",
            off=("--no-escape",),
            default="in -p and -r, not in files or stdin",
        ),
    ] = None
    multiline: Annotated[
        bool,
        flag(
            "-mli",
            "--multiline-input",
            help="In a chat, Enter adds a line and \\ at its end sends.",
        ),
    ] = False
    history: Annotated[
        bool,
        flag(
            "--history",
            help="Keep what is typed in a chat for the next one.",
            off=("--no-history",),
            default="on",
        ),
    ] = True
    chat_template: Annotated[
        str | None,
        flag(
            "--chat-template",
            help="Name of a built-in template, or Jinja text.",
            metavar="NAME|JINJA",
            env="LLAMA_ARG_CHAT_TEMPLATE",
            default="the model's",
        ),
    ] = None
    chat_template_file: Annotated[
        Path | None,
        flag(
            "--chat-template-file",
            help="The Jinja text is in a file.",
            metavar="FILE",
            parse=path,
            env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
            common=True,
        ),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        flag(
            "--chat-template-kwargs",
            help="Variables of the template.",
            metavar="JSON|@FILE",
            parse=json_object,
            env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
            common=True,
        ),
    ] = None
    jinja: Annotated[
        bool,
        flag(
            "--jinja",
            help="Accepted; templates are always Jinja.",
            off=("--no-jinja",),
            env="LLAMA_ARG_JINJA",
        ),
    ] = True
    special: Annotated[bool, flag("-sp", "--special", help="Show the text of control tokens.")] = (
        False
    )


class ReasoningFlags(Group):
    """Models that think before they answer."""

    panel = "Reasoning"

    reasoning: Annotated[
        str | None,
        flag(
            "-rea",
            "--reasoning",
            help="Ask the template to think, or not to.",
            metavar="on|off|auto",
            parse=on_off_auto,
            env="LLAMA_ARG_REASONING",
            default="auto",
            choices=("on", "off", "auto"),
            common=True,
        ),
    ] = None
    reasoning_format: Annotated[
        str | None,
        flag(
            "--reasoning-format",
            help="none = thoughts stay in the text, tagged.",
            metavar="none|deepseek|auto",
            parse=choice("none", "deepseek", "deepseek-legacy", "auto"),
            env="LLAMA_ARG_THINK",
            default="deepseek",
            choices=("none", "deepseek", "auto"),
        ),
    ] = None
    budget: Annotated[
        int | None,
        flag(
            "--reasoning-budget",
            help="Most tokens of thought; 0 ends them at once.",
            metavar="N",
            parse=whole(low=-1),
            env="LLAMA_ARG_THINK_BUDGET",
            default="-1",
        ),
    ] = None
    budget_message: Annotated[
        str | None,
        flag(
            "--reasoning-budget-message",
            help="What is said before thoughts are ended.",
            metavar="TEXT",
            env="LLAMA_ARG_THINK_BUDGET_MESSAGE",
        ),
    ] = None
    reasoning_effort: Annotated[
        str | None,
        flag(
            "--reasoning-effort",
            help="Variable `reasoning_effort` of the template.",
            metavar="LEVEL",
            env="LLAMA_ARG_REASONING_EFFORT",
        ),
    ] = None
    show_thinking: Annotated[
        bool, flag("--show-thinking", help="Print thoughts also when stdout is not a terminal.")
    ] = False
