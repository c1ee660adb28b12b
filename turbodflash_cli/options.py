"""From what was written on the command line to what the engine takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from turbodflash_cli.flags import (
    ComputeFlags,
    ContextFlags,
    LastingFlags,
    PromptFlags,
    ReasoningFlags,
    SamplingFlags,
)
from turbodflash_cli.flags.compute import layers_asked_for
from turbodflash_cli.prompts import read_text, stop_strings
from turbodflash_engine import BadUsage, LoadOptions, SampleOptions, SayOptions, SpecOptions


def load_options(
    model: Path,
    window: ContextFlags,
    compute: ComputeFlags,
    template: str | None = None,
    spec: SpecOptions | None = None,
    lasting: LastingFlags | None = None,
) -> LoadOptions:
    """How the model is opened; what was not given keeps the engine's default."""
    given = {
        "context": window.context,
        "threads": _threads(compute.threads),
        "threads_batch": _threads(compute.threads_batch),
        "batch": window.batch,
        "ubatch": window.ubatch,
        "cache_type_k": window.cache_type_k,
        "cache_type_v": window.cache_type_v,
        "kv_rotate": window.kv_rotate,
        "kv_protect": window.kv_protect,
        "device": compute.device,
        "gpu_layers": layers_asked_for(compute.gpu_layers),
        "graphs": compute.graphs,
        "rope_scaling": window.rope_scaling,
        "rope_scale": window.rope_scale,
        "rope_freq_base": window.rope_freq_base,
        "rope_freq_scale": window.rope_freq_scale,
        "yarn_orig_ctx": window.yarn_orig_ctx or None,
        "chat_template": template,
        "warmup": compute.warmup,
        "spec": spec,
        "context_shift": lasting and lasting.context_shift,
        "keep": lasting and lasting.keep,
        "swa_full": window.swa_full,
        "fit": None if window.fit is None else window.fit == "on",
    }
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return LoadOptions(model, **known)


def chat_template(prompt: PromptFlags) -> str | None:
    """The template that was asked for: Jinja text, or the name of a built-in one."""
    if prompt.chat_template is not None and prompt.chat_template_file is not None:
        raise BadUsage(
            "--chat-template and --chat-template-file both give a template.",
            hint="leave one of them out",
        )
    if prompt.chat_template_file is not None:
        return read_text(prompt.chat_template_file, "chat template file")
    return prompt.chat_template


def say_options(
    defaults: SampleOptions,
    sampling: SamplingFlags,
    prompt: PromptFlags,
    reasoning: ReasoningFlags,
) -> SayOptions:
    """How answers are given; `defaults` are those of the model file."""
    variables = dict(prompt.chat_template_kwargs or {})
    if reasoning.reasoning_effort is not None:
        variables["reasoning_effort"] = reasoning.reasoning_effort
    return SayOptions(
        max_tokens=-1 if prompt.max_tokens is None else prompt.max_tokens,
        stop=stop_strings(prompt),
        sample=sampling.over(defaults),
        thinking=thinking(reasoning),
        split_thoughts=reasoning.reasoning_format != "none",
        thought_budget=-1 if reasoning.budget is None else reasoning.budget,
        budget_message=reasoning.budget_message or "",
        template_kwargs=variables,
        special=prompt.special,
    )


def thinking(reasoning: ReasoningFlags) -> bool | None:
    """Whether the template is asked to think; None leaves it to the template."""
    if reasoning.reasoning is None and forbids_thinking():
        return False
    return {"on": True, "off": False}.get(reasoning.reasoning or "auto")


def forbids_thinking() -> bool:
    """Whether the environment asks for no thoughts, as speculative benchmarks do."""
    return os.environ.get("LLAMA_SPEC_NO_THINK", "0") not in ("", "0")


def _threads(given: int | None) -> int | None:
    return None if given is None else max(given, 0)
