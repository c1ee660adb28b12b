"""Messages to a prompt, by the model's own Jinja template."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.tokenizer.marks import Marks, marks_in
from turbodflash_engine.tokenizer.meter import Meter, TooMuch, meter
from turbodflash_engine.tokenizer.sandbox import Invalid, Refused, Sandbox, reason
from turbodflash_engine.tokenizer.templates import BUILT_IN, DEFAULT, template_source

__all__ = ["BUILT_IN", "DEFAULT", "ChatTemplate", "Message", "template_source"]

Message = Mapping[str, Any]
"""One turn: `role` and `content`, and what else the template knows of (`reasoning_content`,
`tool_calls`, `name`, `tool_call_id`)."""

_KEEP_THOUGHTS = {
    "preserve_reasoning": True,
    "preserve_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
    "drop_thinking": False,
}
_NEEDLE = "needle-in-the-prompt"
_OTHER = "other-in-the-prompt"


class SpecialTexts(Protocol):
    """What is needed of a tokenizer: the texts of BOS and EOS, and whether it adds them."""

    bos_id: int
    eos_id: int
    add_bos: bool
    add_eos: bool

    def token_text(self, id: int) -> str: ...


class ChatTemplate:
    """Renders conversations for one model."""

    def __init__(
        self, source: str, tokenizer: SpecialTexts, now: Callable[[], datetime] = datetime.now
    ) -> None:
        """source: Jinja text (see `template_source`); BadModel if it is none."""
        self.source = source
        self._now = now
        self._bos = tokenizer.token_text(tokenizer.bos_id)
        self._eos = tokenizer.token_text(tokenizer.eos_id)
        self._added = (tokenizer.add_bos and self._bos, tokenizer.add_eos and self._eos)
        try:
            self._template = Sandbox(now).compiled(source)
        except Invalid as fault:
            raise BadModel(str(fault), hint="choose another with --chat-template") from None

    def render(
        self,
        messages: Sequence[Message],
        /,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt of a conversation, to be encoded with special tokens parsed and added.

        A BOS (or EOS) that encoding will add is not in it. Thinking is on unless
        `enable_thinking` is False, where the template knows of it. `kwargs` are further variables
        of the template and win over all that is set here. Special-token text inside a message is
        that token: the prompt is one text. BadUsage when the template refuses the messages or
        fails on them, BadModel when it is stopped.
        """
        variables = self._variables(add_generation_prompt, tools, enable_thinking is not False)
        return self._without_added(self._run(self._adapted(messages), variables | kwargs))

    @cached_property
    def supports_thinking(self) -> bool:
        """Whether the prompt depends on `enable_thinking`."""
        on, off = (self._probe([_user(_NEEDLE)], enable_thinking=each) for each in (True, False))
        return on != off

    @cached_property
    def supports_system(self) -> bool:
        """Whether a system message reaches the prompt."""
        return _NEEDLE in self._probe([_turn("system", _NEEDLE), _user(_OTHER)])

    @cached_property
    def typed_content(self) -> bool:
        """Whether content must be a list of `{"type": "text", "text": ...}` parts."""
        if _NEEDLE in self._probe([_user(_NEEDLE)]):
            return False
        parts = [{"type": "text", "text": _NEEDLE}]
        return _NEEDLE in self._probe([{"role": "user", "content": parts}])

    @property
    def thought_marks(self) -> Marks | None:
        """What the model writes around its thoughts, if the template knows thoughts."""
        return marks_in(self.source)

    def _variables(
        self, add_generation_prompt: bool, tools: Any, enable_thinking: bool
    ) -> dict[str, Any]:
        now = self._now()
        variables = {
            "bos_token": self._bos,
            "eos_token": self._eos,
            "enable_thinking": enable_thinking,
            "datetime": now.strftime("%b %d %Y"),
            "date_string": now.strftime("%d %b %Y"),
            **_KEEP_THOUGHTS,
        }
        if add_generation_prompt:
            variables["add_generation_prompt"] = True
        if tools:
            variables["tools"] = list(tools)
        return variables

    def _adapted(self, messages: Sequence[Message]) -> list[Message]:
        """Messages in the shape that this template understands."""
        adapted = [_with_known_role(message) for message in messages]
        if any(message.get("role") == "system" for message in adapted) and not self.supports_system:
            adapted = _system_into_next(adapted)
        if any(isinstance(message.get("content"), str) for message in adapted):
            adapted = [_with_parts(m) for m in adapted] if self.typed_content else adapted
        return adapted

    def _probe(self, messages: list[Message], enable_thinking: bool = False) -> str:
        """A small conversation's prompt; empty where the template does not take it."""
        try:
            return self._run(messages, self._variables(True, None, enable_thinking))
        except BadUsage:
            return ""

    def _run(self, messages: list[Message], variables: dict[str, Any]) -> str:
        given = {"messages": messages} | variables
        token = meter.set(Meter(given))
        try:
            pieces = []
            for piece in self._template.generate(given):
                meter.get().charge(len(piece))
                pieces.append(piece)
            return "".join(pieces)
        except Refused as refusal:
            raise BadUsage(f"the chat template refuses this conversation: {refusal}") from None
        except TooMuch as excess:
            raise BadModel(
                f"the chat template was stopped{_line(excess)}: {excess}",
                hint="choose another with --chat-template",
            ) from None
        except Exception as error:
            raise BadUsage(
                f"the chat template failed{_line(error)}: {reason(error)}",
                hint="choose another with --chat-template, or check --chat-template-kwargs",
            ) from error
        finally:
            meter.reset(token)

    def _without_added(self, prompt: str) -> str:
        bos, eos = self._added
        if bos:
            prompt = prompt.removeprefix(bos)
        return prompt.removesuffix(eos) if eos else prompt


def _line(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
    return f" in line {lines[-1]}" if lines else ""


def _turn(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _user(content: str) -> Message:
    return _turn("user", content)


def _with_known_role(message: Message) -> Message:
    return {**message, "role": "system"} if message.get("role") == "developer" else message


def _with_parts(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def _system_into_next(messages: list[Message]) -> list[Message]:
    """System text at the head of the message after it; at the very end it becomes a user's."""
    adapted: list[Message] = []
    pending = ""
    for message in messages:
        if message.get("role") == "system":
            pending += f"{message.get('content') or ''}\n"
        else:
            adapted.append(
                {**message, "content": pending + (message.get("content") or "")}
                if pending
                else message
            )
            pending = ""
    return [*adapted, _user(pending.rstrip("\n"))] if pending else adapted
