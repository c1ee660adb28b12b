"""The examples run as they are written, on a tiny model."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.golden_files import GOLDEN
from turbodflash_cli.bench_drafting import bench_prompts
from turbodflash_engine.loading import load
from turbodflash_engine.options import LoadOptions

ROOT = Path(__file__).parents[1]


def run(*words: str, beside: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run an example. beside: a folder whose modules it may import."""
    roots = [ROOT / folder for folder in (".", "engine", "kernels")]
    folders = os.pathsep.join(str(root) for root in ([beside] if beside else []) + roots)
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT / "examples",
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(lzma.decompress((GOLDEN / "models" / "tiny-llama.gguf.xz").read_bytes()))
    return str(path)


def test_generate_streams_an_answer_and_its_speed(model):
    done = run("generate.py", model, "What is a trie?")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\n\[\d+ tokens, \d+ t/s\]\n$", done.stdout)


def test_a_turn_of_the_comparison_measures_prompt_and_decoding(model):
    done = run("compare_llama_cpp.py", "-m", model, "-t", "1", "--engine", "turbodflash")
    assert done.returncode == 0, done.stderr
    assert re.search(r'{"prompt_tokens": 5\d\d, "prompt": [1-9].*, "decode": [1-9].*}', done.stdout)


def test_the_largest_logits_are_those_of_all(model):
    done = run("largest_logits.py", model)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^ +[1248] +(?:1|40)(?: +\d+\.\d\d){3}$", done.stdout, re.M)) == 8


def test_the_comparison_says_what_it_lacks(model, tmp_path):
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    done = run("compare_llama_cpp.py", "-m", model, "--llama-python", str(bare))
    assert done.returncode == 1
    assert "pip install llama-cpp-python" in done.stderr


UNDECIDED = """
import numpy

GGML_TYPE_Q8_0 = 8

class Llama:
    def __init__(self, model, *, type_k, **more):
        assert type_k == 8
        self.scores = numpy.zeros((32, 300))

    def tokenize(self, text, **more):
        return list(text)

    def reset(self):
        pass

    def eval(self, tokens):
        assert len(tokens) == 32
"""


def test_the_other_programs_perplexity_is_taken_from_its_logits(tmp_path):
    (tmp_path / "llama_cpp.py").write_text(UNDECIDED)
    (tmp_path / "text").write_text("some text, " * 12)
    words = ["x.gguf", str(tmp_path / "text"), "-c", "32", "--chunks", "2", "--cache-type", "q8_0"]
    done = run("perplexity_llama_cpp.py", *words, beside=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *("[1]300.0000", "[2]300.0000", "Final estimate: PPL = 300.0000 +/- 0.00000")
    ]


def test_a_hopeless_draft_is_the_same_file_with_other_weights(tmp_path):
    draft, hopeless = tmp_path / "draft.gguf", tmp_path / "hopeless.gguf"
    draft.write_bytes(
        lzma.decompress((GOLDEN / "models" / "tiny-qwen3-q-q8_0.gguf.xz").read_bytes())
    )
    done = run("hopeless_draft.py", str(draft), str(hopeless))
    assert done.returncode == 0, done.stderr
    before, after = (gguf.GGUFReader(path).tensors for path in (draft, hopeless))
    for one, other in zip(before, after, strict=True):
        assert (one.name, one.shape.tolist()) == (other.name, other.shape.tolist())
        assert np.array_equal(one.data, other.data) == (len(one.shape) == 1)


def test_the_prompts_for_repeating_are_prompts():
    (prompt,) = bench_prompts(ROOT / "examples" / "repeat_code.json")
    assert (prompt.kind, "```python" in prompt.text) == ("repeat", True)


INTERPRETED = """
import runpy
from tests.interpreter import improve

improve()
runpy.run_path("gpu_check.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("device", "sections", "seconds"),
    [
        ("gpu", ("ops", "rows", "products"), 6),
        ("gpu", ("passes",), 120),
        ("reference", ("recorded", "graphs", "lossless"), 6),
    ],
)
def test_a_card_is_checked_here_interpreted(device, sections, seconds, tmp_path):
    file = tmp_path / "found.json"
    only = ",".join(sections)
    words = ("--only", only, "--seconds", str(seconds), "--device", device, "--json", str(file))
    done = run("-c", INTERPRETED, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["interpreted"]
    assert tuple(found["sections"]) == sections
    for name, each in found["sections"].items():
        assert each["ok"]
        assert each["checked"] or each["figures"], name


def test_a_section_that_fails_does_not_end_the_others(tmp_path):
    file = tmp_path / "found.json"
    done = run(
        *("gpu_check.py", "--only", "recorded,graphs", "--seconds", "60", "--device", "nothing"),
        *("--json", str(file)),
    )
    assert done.returncode == 1
    assert "recorded: 1 checked, 1 failed" in done.stdout
    assert "no device named 'nothing'" in done.stdout
    assert list(json.loads(file.read_text())["sections"]) == ["recorded", "graphs"]


def test_a_section_that_is_not_there_is_named():
    done = run("gpu_check.py", "--only", "opps")
    assert done.returncode == 2
    assert "no section 'opps'; there are ops, rows, recorded" in done.stderr


def test_a_plan_is_compared_with_what_is_taken(model):
    done = run("check_plan.py", model, "-c", "256")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["tokens"] == 255
    assert figures["process"] > 0
    assert figures["planned"] > 4 * figures["tokens"]


@pytest.mark.parametrize("architecture", ["qwen3moe", "qwen35moe"])
def test_a_model_of_random_weights_is_a_model(architecture, tmp_path):
    path = tmp_path / "random.gguf"
    sizes = {"embedding_length": 256, "expert_feed_forward_length": 96, "expert_count": 12}
    sizes |= {"vocab_size": 512, "attention.head_count": 4}
    words = [word for key, value in sizes.items() for word in ("--set", f"{key}={value}")]
    done = run("synthetic_model.py", str(path), "--arch", architecture, "--layers", "4", *words)
    assert done.returncode == 0, done.stderr
    loaded = load(LoadOptions(path, context=256, device="reference"))
    assert loaded.info.architecture == architecture
    logits = loaded.model(loaded.tokenizer.encode("any", add_special=True, parse_special=True))
    assert 0.1 < logits.logits.std() < 10
