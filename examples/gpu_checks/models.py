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
QUANTISED = (
    *(("llama-q", "q4_1"), ("llama-q", "q4_K_M")),
    *(("qwen3-q", "q4_K_M"), ("qwen3-q", "q8_0")),
)
PROMPT = [7, 300, 301, 302, 40, 41, 300, 301, 302, 40]
SAID = 24


def recorded(setting: Setting) -> None:
    """Logits of prompts and steps, and the greedy continuation, as recorded."""
    for family, kind in QUANTISED:
        if setting.over():
            return
        expected = golden(f"{family}-quant")
        logits = _prompt_of(f"{family}-{kind}", expected["tokens"], setting)[1][-24:]
        exact, stock = (expected[f"{kind}_{what}"] for what in ("exact_last24", "stock_vs_exact"))
        _compare(setting, f"{family}-{kind}", logits, exact, float(stock))
    for name in plugins.names("models"):
        if setting.over():
            return
        expected = golden(name)
        model, logits = _prompt_of(name, expected["tokens"], setting)
        _compare(setting, name, logits, expected["logits"], float(expected["atol"]))
        said, greedy = int(logits[-1].argmax()), [int(t) for t in expected["greedy_tokens"]]
        for step, token in enumerate(greedy):
            setting.report.check(said == token, f"{name}: step {step} says {said}, not {token}")
            said = int(model([token]).logits[0].argmax())


def _prompt_of(
    name: str, tokens: NDArray[np.int32], setting: Setting
) -> tuple[Model, NDArray[np.float32]]:
    """A tiny model that has read a prompt, and the logits of all its rows."""
    model = tiny(name, open_device(setting.device))
    return model, model([int(token) for token in tokens], logits=len(tokens)).logits.copy()


def _compare(
    setting: Setting,
    name: str,
    logits: NDArray[np.float32],
    exact: NDArray[np.float32],
    allowed: float,
) -> None:
    worst = float(np.abs(logits - exact).max())
    setting.report.check(worst <= allowed, f"{name}: logits off by {worst:.2e} > {allowed:.2e}")
    setting.report.figures[name] = {"worst": worst, "allowed": allowed}


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
