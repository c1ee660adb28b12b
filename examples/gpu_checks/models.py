"""Tiny models: the recorded numbers, graphs against eager, and drafts that change no bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_checks.report import Setting
from tests.engine.spec_runs import read_prompt, take_step, tiny_draft
from tests.engine.tiny_models import golden, tiny
from tests.golden_files import GOLDEN
from turbodflash_engine import plugins
from turbodflash_engine.models._base import Model
from turbodflash_engine.options import SpecOptions
from turbodflash_kernels.device import open_device

WIDTHS = (*range(1, 17), 24, 32)
TOLERANCE = 100
"""Half floats against float32, in units of what the recorded numbers may be off in float32."""
PROMPT = [7, 300, 301, 302, 40, 41, 300, 301, 302, 40]
SAID = 24


def recorded(setting: Setting) -> None:
    """Logits of prompts and steps, and the greedy continuation, as recorded."""
    for name in plugins.names("models"):
        if setting.over():
            return
        expected = golden(name)
        model = tiny(name, open_device(setting.device))
        tokens = [int(token) for token in expected["tokens"]]
        logits = model(tokens, logits=len(tokens)).logits
        worst = float(np.abs(logits - expected["logits"]).max())
        allowed = TOLERANCE * float(expected["atol"])
        setting.report.check(worst <= allowed, f"{name}: logits off by {worst:.2e} > {allowed:.2e}")
        setting.report.figures[name] = {"worst": worst, "recorded_atol": float(expected["atol"])}
        said, greedy = int(logits[-1].argmax()), [int(t) for t in expected["greedy_tokens"]]
        for step, token in enumerate(greedy):
            setting.report.check(said == token, f"{name}: step {step} says {said}, not {token}")
            said = int(model([token]).logits[0].argmax())


def graphs(setting: Setting) -> None:
    """Passes of every width have the same bits as graphs and launched one by one."""
    for name in ("qwen3", "llama-q-q4_K_M"):
        models = [
            tiny(name, open_device(setting.device, graphs=graphs), kv="f16")
            for graphs in (True, False)
        ]
        for width in WIDTHS:
            if setting.over():
                return
            for turn in range(2):  # captured, then played again with other contents
                run = [(turn * 31 + row * 7) % 512 for row in range(width)]
                one, other = (_logits(model, run) for model in models)
                words = f"{name}: {width} rows, turn {turn}: a graph's numbers are others"
                setting.report.check(np.array_equal(one, other), words)


def lossless(setting: Setting) -> None:
    """With every tiny draft and width the text is the one without."""
    device = open_device(setting.device)
    model = tiny("qwen3", device)
    plain = _said(model, None, 0)
    for pair in sorted(path.name for path in GOLDEN.glob("models/tiny-*--qwen3.gguf.xz")):
        pair = pair.removeprefix("tiny-").removesuffix(".gguf.xz")
        drafter = tiny_draft(pair, model, device, SpecOptions())
        for width in range(1, min(drafter.longest, 16) + 1):
            if setting.over():
                return
            drafter.truncate(0)
            drafted = _said(model, drafter, width)
            setting.report.check(drafted == plain, f"{pair}, width {width}: {drafted} != {plain}")


def _logits(model: Model, run: Sequence[int]) -> NDArray[np.float32]:
    if model.cache.length + len(run) > model.cache.capacity:
        model.cache.truncate(0)
    return model(run, logits=len(run)).logits.copy()


def _said(model: Model, drafter: Any, width: int) -> list[int]:
    """The greedy answer to PROMPT."""
    model.cache.truncate(0)
    text = list(PROMPT)
    if drafter is None:
        read_prompt(model, _Nobody(), text)
        return list(_steps(model, text))
    read_prompt(model, drafter, text, chunk=4)
    while len(text) < len(PROMPT) + SAID:
        take_step(model, drafter, text, width)
    return text[len(PROMPT) : len(PROMPT) + SAID]


def _steps(model: Model, text: list[int]) -> Iterator[int]:
    last = text[-1]
    for _ in range(SAID):
        last = int(model([last]).logits[0].argmax())
        yield last


class _Nobody:
    """Sees nothing."""

    taps: tuple[int, ...] = ()

    def observe(self, *seen: Any, coming: int = 0) -> None:
        pass
