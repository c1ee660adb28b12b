"""How long products, passes and drafts take, beside what the card's memory could do at best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from gpu_checks.report import Setting
from gpu_checks.synthetic import (
    QWEN3_8B,
    QWEN3_32B,
    TOY,
    Shape,
    SyntheticDevice,
    draft_of,
    model_of,
)
from turbodflash_engine.drafters._base import Drafter
from turbodflash_engine.models._base import Model
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import RmsNorm

WIDTHS, TOY_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16), (2,)
DEPTHS, TOY_DEPTHS = (1024, 32_768), (64,)
CHUNK, TOY_CHUNK = 512, 33
UBATCHES = 2
REPEATED = 512 << 20  # so many bytes of weights lie between two uses of one matrix
ROUNDS, LEAST = 5, 0.02  # seconds


@dataclass(frozen=True)
class Timed:
    """Seconds of one call: the median of ROUNDS, each long enough to be measured.

    real: otherwise of the first call, which means nothing.
    """

    device: Device
    real: bool

    def __call__(self, run: Callable[[], object]) -> float:
        if not self.real:
            return self._seconds(run, 1)
        run()
        run()  # compiled, captured, warm
        once = self._seconds(run, 1)
        calls = max(1, round(LEAST / max(once, 1e-6)))
        return median(self._seconds(run, calls) for _ in range(ROUNDS)) / calls

    def _seconds(self, run: Callable[[], object], calls: int) -> float:
        self.device.flush()
        began = perf_counter()
        for _ in range(calls):
            run()
        self.device.flush()
        return perf_counter() - began


@cache
def copy_gbs(device: SyntheticDevice) -> float:
    """1e9 bytes a second, read and written, of a copy within the card: the best of a few."""
    probe = device.probe()
    return max(probe.read_gbs() for _ in range(ROUNDS))


def products(setting: Setting) -> None:
    """The matrices of a layer and the head, by rows: microseconds, GB/s of weights, share."""
    device = SyntheticDevice.open()
    best = copy_gbs(device)
    setting.report.figures["copy_gbs"] = best
    for shape in (QWEN3_32B, QWEN3_8B) if setting.real else (TOY,):
        for name, (rows, cols) in matrices(shape).items():
            for width in WIDTHS if setting.real else TOY_WIDTHS:
                if setting.over():
                    return
                seconds, nbytes = _product(device, setting, shape, rows, cols, width)
                gbs = nbytes / seconds / 1e9
                setting.report.figures[f"{shape.name} {name} {width}"] = {
                    "us": seconds * 1e6,
                    "gbs": gbs,
                    "of_copy": gbs / best,
                }


def matrices(shape: Shape) -> dict[str, tuple[int, int]]:
    """Rows and columns of the matrices of a layer, and of the head."""
    inner, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "qkv": (inner + 2 * kv, shape.width),
        "output": (shape.width, inner),
        "gate_up": (2 * shape.hidden, shape.width),
        "down": (shape.width, shape.hidden),
        "head": (shape.vocabulary, shape.width),
    }


def _product(
    device: SyntheticDevice, setting: Setting, shape: Shape, rows: int, cols: int, width: int
) -> tuple[float, int]:
    """Seconds of one, and its bytes; several matrices in turn, so that no cache holds one."""
    first = device.random(shape.type, rows, cols)
    count = max(1, -(-REPEATED // first.nbytes)) if setting.real else 2
    weights = [first, *(device.random(shape.type, rows, cols) for _ in range(count - 1))]
    norm = RmsNorm(device.upload(np.ones(cols, np.float32)), 1e-6)
    linears = [device.bind("linear", weight=w, prologue=norm, bias=None) for w in weights]
    x = device.upload(np.ones((width, cols), np.float32))
    run = device.capture(lambda: [linear(x) for linear in linears])
    return Timed(device, setting.real)(run) / count, first.nbytes


def passes(setting: Setting) -> None:
    """A whole model: decoding, verifying and prompts at depth, with a draft and without."""
    device = SyntheticDevice.open()
    depths = DEPTHS if setting.real else TOY_DEPTHS
    positions = depths[-1] + (2 * UBATCHES + 1) * (CHUNK if setting.real else TOY_CHUNK)
    for shape in (QWEN3_32B, QWEN3_8B) if setting.real else (TOY,):
        if setting.over():
            return
        began = perf_counter()
        model = model_of(shape, device, positions)
        nbytes = sum(weight.nbytes for weight in device.packed)
        drafter = draft_of(shape, device, model, positions)
        read = nbytes - model.shared.embedding.on(device).nbytes  # of it, a row a token is read
        bench = _Bench(setting, device, model, read, drafter, copy_gbs(device))
        device.flush()
        figures: dict[str, Any] = {"made_in_s": perf_counter() - began, "copy_gbs": bench.best}
        setting.report.figures[shape.name] = figures
        for depth in depths:
            figures[f"at {depth}"] = bench.at(depth)
        del bench, drafter, model
        device.packed.clear()


@dataclass
class _Bench:
    """weights: bytes that a pass of few rows reads. best: GB/s of a copy."""

    setting: Setting
    device: SyntheticDevice
    model: Model
    weights: int
    drafter: Drafter
    best: float

    def at(self, depth: int) -> dict[str, Any]:
        """Figures after so many tokens, which are counted and not computed: the cache holds 0."""
        self._go_to(depth)
        figures: dict[str, Any] = {}
        for width in WIDTHS if self.setting.real else TOY_WIDTHS:
            if self.setting.over():
                return figures
            figures[f"{width} rows"] = self._verify(width, depth)
        if not self.setting.over():
            figures |= self._drafting(depth)
        if not self.setting.over():
            figures |= self._prompts(depth)
        return figures

    def _verify(self, width: int, depth: int) -> dict[str, float]:
        seconds = Timed(self.device, self.setting.real)(lambda: self._tried(width, ()))
        nbytes = self.weights + self._kv_bytes(depth)
        gbs = nbytes / seconds / 1e9
        return {"ms": seconds * 1e3, "gbs": gbs, "of_copy": gbs / self.best}

    def _drafting(self, depth: int) -> dict[str, float]:
        """A step with a draft: the block, verifying it with taps, observing what is kept."""
        history = [1] * (depth + 1)
        timed = Timed(self.device, self.setting.real)
        width = min(self.drafter.longest, 16 - 1)
        draft = timed(lambda: self.drafter.draft(history, width))
        with_taps = timed(lambda: self._tried(width + 1, self.drafter.taps))
        return {"draft_ms": draft * 1e3, "verify_block_ms": with_taps * 1e3}

    def _prompts(self, depth: int) -> dict[str, float]:
        """Tokens a second of a prompt that begins at the depth."""
        plain, drafted = (
            UBATCHES * self._chunk / self._timed_prompt(depth, drafted=drafted)
            for drafted in (False, True)
        )
        return {"prompt_tps": plain, "prompt_tps_drafter": drafted, "ratio": drafted / plain}

    def _timed_prompt(self, depth: int, *, drafted: bool) -> float:
        def run() -> None:
            self._go_to(depth)
            for turn in range(UBATCHES):
                at = depth + turn * self._chunk
                taps = self.drafter.taps if drafted else ()
                output = self.model([1] * self._chunk, logits=0, taps=taps)
                if drafted:
                    place = range(at, at + self._chunk)
                    self.drafter.observe([1] * self._chunk, place, output.taps)

        return Timed(self.device, self.setting.real)(run)

    @property
    def _chunk(self) -> int:
        return CHUNK if self.setting.real else TOY_CHUNK

    def _tried(self, width: int, taps: tuple[int, ...]) -> None:
        with self.model.cache.trial():
            self.model([1] * width, logits=width, taps=taps).logits  # noqa: B018, it may be lazy

    def _go_to(self, depth: int) -> None:
        """Both caches say that they hold so many tokens."""
        self.model.cache.truncate(0)
        self.model.cache.length = depth
        self.drafter.truncate(0)
        rows = self.device.zeros((1, self.model.shared.width), np.float32)
        context: Any = vars(self.drafter)["_context"]
        context.length = context._first = depth - 1
        self.drafter.observe([1], range(depth - 1, depth), [rows] * len(self.drafter.taps))

    def _kv_bytes(self, depth: int) -> float:
        return self.model.cache.nbytes * depth / self.model.cache.capacity
