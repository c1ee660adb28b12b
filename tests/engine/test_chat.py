"""Conversations become the prompts that the reference makes, and templates are kept in bounds."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from tests.engine.tokenizer_vocabularies import ALL, metadata, tokenizer
from tests.golden_files import GOLDEN, shared_golden
from turbodflash_engine.decode import Thoughts
from turbodflash_engine.errors import BadModel, BadUsage, Unknown
from turbodflash_engine.tokenizer import meter
from turbodflash_engine.tokenizer.chat import BUILT_IN, ChatTemplate, template_source
from turbodflash_engine.tokenizer.marks import CHANNELS, TAGS

VOCABULARY_OF = {
    "gemma-4-vocab": "gemma-4",
    "qwen35-vocab": "qwen35",
    "smollm2": "smollm",
    "tiny-qwen3": "tiny-bpe-qwen2",
}
CHATS = {path.stem: path for path in (*shared_golden("chat/*.json"), *GOLDEN.glob("chat/*.json"))}
CASES = [
    pytest.param(VOCABULARY_OF[name], case, id=f"{name}-{case['name']}")
    for name, path in sorted(CHATS.items())
    if VOCABULARY_OF.get(name) in ALL
    for case in json.loads(path.read_text("utf-8"))["cases"]
]
HELLO = [{"role": "user", "content": "Hello"}]
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "1"},
    {"role": "user", "content": "Two?"},
]


class Specials:
    """A tokenizer of which only BOS and EOS matter."""

    bos_id, eos_id = 0, 1

    def __init__(self, bos="<s>", eos="</s>", add_bos=True, add_eos=False):
        self.texts, self.add_bos, self.add_eos = (bos, eos), add_bos, add_eos

    def token_text(self, id):
        return self.texts[id]


def template(source, **specials):
    return ChatTemplate(source, Specials(**specials), now=lambda: datetime(2026, 3, 9))


def render(source, messages=HELLO, **kwargs):
    return template(source).render(messages, **kwargs)


@pytest.mark.parametrize(("vocabulary", "case"), CASES)
def test_renders_and_encodes_as_the_reference_does(vocabulary, case):
    ours = tokenizer(vocabulary)
    source = template_source(None, metadata(vocabulary).get("tokenizer.chat_template"))
    prompt = ChatTemplate(source, ours).render(
        case["messages"],
        add_generation_prompt=case.get("add_generation_prompt", True),
        enable_thinking=case.get("enable_thinking"),
    )
    assert prompt == case["prompt"]
    assert ours.encode(prompt, add_special=True, parse_special=True) == case["tokens"]


def test_a_file_without_a_template_speaks_chatml():
    cases = json.loads((GOLDEN / "chat" / "gemma3-270m-no-template.json").read_text("utf-8"))
    for case in cases["cases"]:
        generate = case.get("add_generation_prompt", True)
        prompt = render(
            template_source(None, None), case["messages"], add_generation_prompt=generate
        )
        assert prompt == case["prompt"]


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        (
            "chatml",
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n"
            "<|im_start|>assistant\n1<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            "gemma",
            "<start_of_turn>user\nBe brief.\n\nOne?<end_of_turn>\n<start_of_turn>model\n1"
            "<end_of_turn>\n<start_of_turn>user\nTwo?<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "llama2",
            "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nOne? [/INST] 1 </s><s>[INST] Two? [/INST]",
        ),
        (
            "llama3",
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n1<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("mistral-v3", "[INST] Be brief.\n\nOne?[/INST] 1</s>[INST] Two?[/INST]"),
        (
            "mistral-v7",
            "[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] One?[/INST] 1</s>[INST] Two?[/INST]",
        ),
        (
            "phi3",
            "<|system|>\nBe brief.<|end|>\n<|user|>\nOne?<|end|>\n<|assistant|>\n1<|end|>\n"
            "<|user|>\nTwo?<|end|>\n<|assistant|>\n",
        ),
        (
            "zephyr",
            "<|system|>\nBe brief.</s>\n<|user|>\nOne?</s>\n<|assistant|>\n1</s>\n"
            "<|user|>\nTwo?</s>\n<|assistant|>\n",
        ),
    ],
)
def test_built_in_templates(name, prompt):
    assert render(template_source(name, "{{ 'the file has another' }}"), TALK) == prompt


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_built_in_template_takes_a_system_message_and_text(name):
    ours = template(BUILT_IN[name])
    assert ours.supports_system
    assert not ours.typed_content
    assert not ours.supports_thinking
    assert "Hello" in ours.render(HELLO)


@pytest.mark.parametrize(
    ("chosen", "in_file", "source"),
    [
        (None, "{{ 1 }}", "{{ 1 }}"),
        (None, None, BUILT_IN["chatml"]),
        (" ", "{{ 1 }}", "{{ 1 }}"),
        ("gemma", "{{ 1 }}", BUILT_IN["gemma"]),
        ("{% if 1 %}{% endif %}", "{{ 1 }}", "{% if 1 %}{% endif %}"),
    ],
)
def test_which_template_is_used(chosen, in_file, source):
    assert template_source(chosen, in_file) == source


def test_a_chosen_text_that_is_no_template_is_bad_usage():
    with pytest.raises(BadUsage, match="not valid Jinja in line 1: unexpected 'end of template'"):
        template_source("{{ nope(", "{{ 1 }}")
    assert template_source(None, "{{ nope(") == "{{ nope("


def test_a_template_name_that_is_nearly_right_is_corrected():
    with pytest.raises(Unknown) as caught:
        template_source("chatlm", None)
    assert caught.value.hint == "did you mean 'chatml'?"


@pytest.mark.parametrize(
    ("specials", "prompt"),
    [
        ({"add_bos": True}, "Hello</s>"),
        ({"add_bos": False}, "<s>Hello</s>"),
        ({"add_bos": True, "add_eos": True}, "Hello"),
        ({"bos": "", "eos": "", "add_bos": True, "add_eos": True}, "Hello"),
    ],
)
def test_what_encoding_adds_is_not_in_the_prompt(specials, prompt):
    source = "{{ bos_token + messages[0].content + eos_token }}"
    assert template(source, **specials).render(HELLO) == prompt


def test_special_text_in_a_message_is_a_special_token():
    ours = tokenizer("tiny-bpe-qwen2")
    prompt = ChatTemplate(BUILT_IN["chatml"], ours).render(
        [{"role": "user", "content": "<|im_end|>"}]
    )
    ids = ours.encode(prompt, add_special=True, parse_special=True)
    assert ids.count(ours.eot_id) == 2


def test_blocks_take_their_line_and_loops_can_be_left():
    source = """\
{% for m in messages %}
  {% if loop.index == 2 %}
{% break %}
  {% endif %}
{{ m.role }}.
{% endfor %}
end"""
    assert render(source, TALK[1:]) == "user.\nend"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "Hello"}]'),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ strftime_now('%d %B %Y') }}", "09 March 2026"),
        ("{{ date_string }}|{{ datetime }}", "09 Mar 2026|Mar 09 2026"),
        ("{{ add_generation_prompt }}{{ tools is defined }}", "TrueFalse"),
        ("{{ preserve_thinking }}{{ clear_thinking }}", "TrueFalse"),
        ("{{ enable_thinking }}{{ reasoning_effort is defined }}", "TrueFalse"),
        ("{{ 'a' ~ 1 ~ none }}{{ 'x' * 3 }}{{ '%s' % 2 }}{{ '{}'.format(3) }}", "a1Nonexxx23"),
        ("{% set n = namespace(i=0) %}{% for x in [1, 2] %}{% set n.i = n.i + x %}{% endfor %}"
         "{{ n.i }}", "3"),
        ("{% for x in [1, 2, 3] %}{{ loop.length }}{{ loop.last }}{{ loop.previtem }}{% endfor %}",
         "3False3False13True2"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user"),
        ("{{ messages[::-1][0].content[1:3] }}", "el"),
    ],
)  # fmt: skip
def test_what_templates_can_say(source, text):
    assert render(source) == text


def test_further_variables_win():
    source = "{{ enable_thinking }} {{ tools | length }} {{ reasoning_effort }}"
    kwargs = {"enable_thinking": False, "tools": [{"name": "f"}], "reasoning_effort": "low"}
    assert render(source, **kwargs) == "False 1 low"
    assert render("{{ date_string }}", date_string="today") == "today"


def test_generation_prompt_is_not_even_defined_without_generation():
    assert render("{{ add_generation_prompt is defined }}", add_generation_prompt=False) == "False"


def test_developers_speak_as_the_system():
    prompt = render(BUILT_IN["chatml"], [{"role": "developer", "content": "D"}])
    assert prompt.startswith("<|im_start|>system\nD")


IGNORES_SYSTEM = "{% for m in messages if m.role != 'system' %}[{{ m.content }}]{% endfor %}"
REFUSES_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}[{{ m.content }}]{% endfor %}"
)


@pytest.mark.parametrize("source", [IGNORES_SYSTEM, REFUSES_SYSTEM])
def test_a_system_message_that_would_be_lost_goes_before_the_next(source):
    assert render(source, TALK) == "[Be brief.\nOne?][1][Two?]"
    assert render(source, TALK[:1]) == "[Be brief.]"


def test_content_is_given_in_parts_where_only_parts_are_read():
    source = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    assert template(source).typed_content
    assert render(source) == "[Hello]"


@pytest.mark.parametrize(
    ("source", "supports", "marks"),
    [
        ("{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}",
         True, TAGS),
        ("{{ messages[0].content }}{% if enable_thinking %}<|channel>thought<channel|>{% endif %}",
         True, CHANNELS),
        ("{{ messages[0].content }}", False, None),
    ],
)  # fmt: skip
def test_who_thinks(source, supports, marks):
    assert template(source).supports_thinking is supports
    assert template(source).thought_marks == marks


TURN = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
QWEN_3 = (
    TURN + "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)
QWEN_35 = (
    TURN + "{% if enable_thinking %}{{ '<think>\\n' }}{% else %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)
GEMMA_4 = (
    "{% if enable_thinking %}{{ '<|turn>system\\n<|think|>\\n<turn|>\\n' }}{% endif %}"
    "{{ '<|turn>user\\nHello<turn|>\\n<|turn>model\\n' }}"
    "{% if not enable_thinking %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}"
)
THOUGHT, CHANNEL = "<think>x</think>y", "<|channel>thought\nx<channel|>y"


@pytest.mark.parametrize(
    ("source", "thinking", "end", "said", "told"),
    [
        (QWEN_3, None, "assistant\n", THOUGHT, ("x", "y")),
        (QWEN_3, True, "assistant\n", "y", ("", "y")),
        (QWEN_3, False, "<think>\n\n</think>\n\n", "y", ("", "y")),
        (QWEN_3, False, "<think>\n\n</think>\n\n", THOUGHT, ("", THOUGHT)),
        (QWEN_35, True, "assistant\n<think>\n", "x\n</think>\n\ny", ("x\n", "y")),
        (QWEN_35, False, "<think>\n\n</think>\n\n", "y", ("", "y")),
        (GEMMA_4, True, "<|turn>model\n", CHANNEL, ("x", "y")),
        (GEMMA_4, True, "<|turn>model\n", "y" + CHANNEL, ("x", "yy")),
        (GEMMA_4, False, "<|channel>thought\n<channel|>", "y", ("", "y")),
    ],
)
def test_families_think_and_answer_each_in_their_own_way(source, thinking, end, said, told):
    ours = template(source)
    assert ours.supports_thinking
    prompt = ours.render(HELLO, enable_thinking=thinking)
    assert prompt.endswith(end)
    events = list(Thoughts.after(prompt, ours.thought_marks).push(said, over=True))
    thought = "".join(event.piece for event in events if event.thought)
    assert (thought, "".join(event.piece for event in events if not event.thought)) == told


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("a\n{% bad %}", "not valid Jinja in line 2: Encountered unknown tag 'bad'"),
        ("a\n\n{{ ", "not valid Jinja in line 3"),
        ("{% for x in [1] recursive %}{% endfor %}", "recursive loops are not supported"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nested too deeply"),
    ],
)
def test_a_template_that_is_none_says_where(source, sentence):
    with pytest.raises(BadModel) as caught:
        template(source)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{{ raise_exception('too many') }}", "refuses this conversation: too many"),
        ("\n\n{{ a.b.c }}", "failed in line 3: 'a' is undefined"),
        ("\n{{ 1 / 0 }}", "failed in line 2: ZeroDivisionError: division by zero"),
        ("{% include '/etc/passwd' %}", "failed in line 1"),
        ("{% import 'os' as os %}", "failed in line 1"),
        ("{{ ''.__class__.__mro__ }}", "'__class__' of 'str' object is unsafe"),
        ("{{ ('a' | attr('__class__')).mro() }}", "failed in line 1"),
        ("{{ cycler.__init__.__globals__ }}", "is unsafe"),
        ("{{ raise_exception.__globals__['os'] }}", "is unsafe"),
        ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
        ("{{ messages[0].update(role='x') }}", "is unsafe"),
        ("{{ range(10 ** 9) }}", "Range too big"),
        ("{{ lipsum(9) }}", "'lipsum' is undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"),
    ],
)  # fmt: skip
def test_a_template_that_fails_says_where_and_why(source, sentence):
    with pytest.raises(BadUsage) as caught:
        render(source)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "source", ["{{ raise_exception.__globals__ }}", "{{ '{0.__class__}'.format(1) }}"]
)
def test_what_lies_behind_an_object_prints_nothing(source):
    assert render(source) == ""


GROW = "{% set ns = namespace(x=START) %}{% for i in range(99) %}{% set ns.x = STEP %}{% endfor %}"


def grow(start, step):
    return GROW.replace("START", start).replace("STEP", step)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% set x = 'a' %}" + "y" * 1000 + "{% endfor %}",
        "{% set x %}{% for i in range(99999) %}" + "y" * 1000 + "{% endfor %}{% endset %}",
        "{% macro f(n) %}{% if n %}xy{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ [1] * 10 ** 9 }}",
        "{{ 10 ** 99999 }}",
        "{{ 'a' | center(10 ** 9) }}",
        "{{ ('a\n' * 9999) | indent(99999) }}",
        "{{ 'a'.ljust(10 ** 9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ '{:>{x[y]}}'.format(1, x={'y': 999999999}) }}",
        "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
        "{{ ('a' * 99999) | replace('a', 'b' * 99999) }}",
        "{% set b = 'a' * 9999 %}{{ range(99999) | map(attribute='q', default=b) | join }}",
        "{% set b = 'a' * 9999 %}{{ ''.join(range(99999) | map(attribute='q', default=b)) }}",
        "{{ range(99999) | map('center', 99999) | list }}",
        "{{ messages | tojson(indent=10 ** 9) }}",
        "{{ strftime_now('%Y' * 1000) }}",
        grow("'ab'", "ns.x ~ ns.x"),
        grow("'ab'", "ns.x + ns.x"),
        grow("3", "ns.x * ns.x"),
        grow("[]", "[ns.x, ns.x]"),
        grow("[]", "(ns.x, ns.x)"),
        grow("{}", "{'a': ns.x, 'b': ns.x}"),
        grow("{}", "dict(a=ns.x, b=ns.x)"),
    ],
)  # fmt: skip
def test_a_hostile_template_is_stopped(source, monkeypatch):
    monkeypatch.setattr(meter, "_CHARACTERS", 1 << 20)
    with pytest.raises(BadModel) as caught:
        render(source)
    assert "the chat template was stopped" in str(caught.value)


def test_a_rendering_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(meter, "_SECONDS", 0.0)
    with pytest.raises(BadModel, match=r"it takes longer than 0 s"):
        render("{% for i in range(9) %}{% endfor %}")


def test_namespaces_that_hold_each_other_are_not_printed_in_full():
    assert render(grow("[]", "namespace(a=ns.x, b=ns.x)") + "{{ ns.x }}") == "<namespace>"


def test_a_long_conversation_is_within_bounds():
    messages = [{"role": "user", "content": "word " * 40_000}] * 50
    assert len(render(BUILT_IN["gemma"], messages)) > 9_000_000
