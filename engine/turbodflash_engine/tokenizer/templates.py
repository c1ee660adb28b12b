"""Chat templates by name, for models whose file has none or a wrong one."""

from __future__ import annotations

from datetime import datetime

from turbodflash_engine.errors import BadUsage, Unknown
from turbodflash_engine.tokenizer.sandbox import Invalid, Sandbox

DEFAULT = "chatml"

_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""

_GEMMA = """\
{{- bos_token -}}
{%- set system = messages[0].content | trim + '\\n\\n' if messages[0].role == 'system' else '' -%}
{%- for message in messages if message.role != 'system' -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\\n' + (system if loop.first else '') }}
{{- message.content | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif -%}
"""

_LLAMA2 = """\
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = '<<SYS>>\\n' + message.content + '\\n<</SYS>>\\n\\n' -%}
{%- elif message.role == 'user' -%}
{{ bos_token + '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- else -%}
{{ ' ' + message.content + ' ' + eos_token }}
{%- endif -%}
{%- endfor -%}
"""

_LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{{- message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""

_MISTRAL = """\
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\\n\\n' -%}
{%- elif message.role == 'user' -%}
{{ '[INST] ' + ns.system + message.content + '[/INST]' }}
{%- set ns.system = '' -%}
{%- else -%}
{{ ' ' + message.content + eos_token }}
{%- endif -%}
{%- endfor -%}
"""

_MISTRAL_V7 = """\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ '[SYSTEM_PROMPT] ' + message.content + '[/SYSTEM_PROMPT]' }}
{%- elif message.role == 'user' -%}
{{ '[INST] ' + message.content + '[/INST]' }}
{%- else -%}
{{ ' ' + message.content + eos_token }}
{%- endif -%}
{%- endfor -%}
"""

_PHI3 = """\
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif -%}
"""

_ZEPHYR = """\
{%- for message in messages -%}
{{ '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif -%}
"""

BUILT_IN = {
    "chatml": _CHATML,
    "gemma": _GEMMA,
    "llama2": _LLAMA2,
    "llama3": _LLAMA3,
    "mistral-v3": _MISTRAL,
    "mistral-v7": _MISTRAL_V7,
    "phi3": _PHI3,
    "zephyr": _ZEPHYR,
}


def template_source(chosen: str | None, in_file: str | None) -> str:
    """The Jinja text to use: what was chosen, by name or as text; else the file's; else ChatML.

    BadUsage if what was chosen is no template; the file's own is not looked at.
    """
    if chosen is None or not chosen.strip():
        return in_file or BUILT_IN[DEFAULT]
    if "{%" in chosen or "{{" in chosen:
        _check(chosen)
        return chosen
    if chosen not in BUILT_IN:
        raise Unknown("chat template", chosen, sorted(BUILT_IN))
    return BUILT_IN[chosen]


def _check(source: str) -> None:
    try:
        Sandbox(datetime.now).compiled(source)
    except Invalid as fault:
        raise BadUsage(str(fault), hint="correct it, or give the name of a built-in one") from None
